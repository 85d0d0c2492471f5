package execmode

import "testing"

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc\r\nd":                 "a\tb\nc\nd",
		"wipe\x1b[2K\rls":              `wipe\x1b[2K\rls`,
		"\x1b]52;c;cHdu\x07":           `\x1b]52;c;cHdu\x07`,
		"\u009b2J \u202e \u2066 é 漢 🧵": `\u009b2J \u202e \u2066 é 漢 🧵`,
		"\x00b\x7f":                    `\x00b\x7f`,
		"caf\xe9":                      "caf\uFFFD",
	} {
		for _, color := range []bool{false, true} {
			if got := visible(in, color); got != want {
				t.Errorf("visible(%q, %v) = %q, want %q", in, color, got, want)
			}
		}
	}
	r := &renderer{color: true}
	own := r.paint(red, "error:") + " \x1b[8mhidden"
	if got, want := visible(own, true), "\x1b[31merror:\x1b[0m \\x1b[8mhidden"; got != want {
		t.Errorf("styles: %q, want %q", got, want)
	}
}
