package config

import "testing"

func TestLandlockFallback(t *testing.T) {
	for text, want := range map[string]bool{"": false, "[sandbox]\nfallback = \"none\"\n": false, "[sandbox]\nfallback = \"landlock\"\n": true} {
		c := load(t, Options{Home: home(t, text)})
		if c.LandlockFallback() != want || len(c.Warnings()) != 0 {
			t.Errorf("%q: %v, warnings %v", text, c.LandlockFallback(), c.Warnings())
		}
	}
	if c := load(t, Options{Home: home(t, "[sandbox]\nfallback = \"firejail\"\n")}); c.LandlockFallback() || len(c.Warnings()) != 1 {
		t.Errorf("unknown fallback: %v, warnings %v", c.LandlockFallback(), c.Warnings())
	}
}
