package model

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCatalog(t *testing.T) {
	c := NewCatalog()
	defaults, ids := 0, map[string]bool{}
	for _, m := range c.List(true) {
		if ids[m.ID] || m.DisplayName == "" || m.Description == "" || len(m.Efforts) == 0 || m.ContextWindow == 0 || m.AutoCompactLimit >= m.ContextWindow {
			t.Errorf("entry %+v", m)
		}
		ids[m.ID] = true
		known := false
		for _, e := range m.Efforts {
			known = known || e.Effort == m.DefaultEffort
			if e.Description == "" {
				t.Errorf("%s: effort %s has no description", m.ID, e.Effort)
			}
		}
		if !known {
			t.Errorf("%s: default effort %q is not supported", m.ID, m.DefaultEffort)
		}
		if m.Default {
			defaults++
		}
	}
	if defaults != 1 || c.Default().ID != "gpt-5.5" {
		t.Errorf("%d defaults, %q", defaults, c.Default().ID)
	}
	visible := c.List(false)
	if len(visible) < 2 || visible[0].ID != "gpt-5.5" {
		t.Errorf("visible %v", visible)
	}
	for _, m := range visible {
		if m.Hidden || m.ID == "scripted" {
			t.Errorf("%s is shown", m.ID)
		}
	}
	visible[0].Efforts[0].Effort = "changed"
	if c.Default().Efforts[0].Effort == "changed" {
		t.Error("the catalogue can be changed from outside")
	}
}

func TestLookup(t *testing.T) {
	c := NewCatalog()
	m, warning := c.Lookup("gpt-5.5", Overrides{})
	if warning != "" || !m.FreeformPatch || m.ContextWindow != 258400 {
		t.Errorf("%+v %q", m, warning)
	}
	m, warning = c.Lookup("my-model", Overrides{ContextWindow: 1000})
	if !strings.Contains(warning, "`my-model`") || m.FreeformPatch || m.ID != "my-model" || m.ContextWindow != 1000 || m.AutoCompactLimit != 900 {
		t.Errorf("%+v %q", m, warning)
	}
	if m, _ := c.Lookup("gpt-5.5", Overrides{AutoCompactLimit: 5}); m.AutoCompactLimit != 5 || m.ContextWindow != 258400 {
		t.Errorf("%+v", m)
	}
	if m, w := (&Catalog{}).Lookup("x", Overrides{}); w == "" || m.ContextWindow == 0 {
		t.Errorf("%+v %q", m, w)
	}
}

func TestTurnError(t *testing.T) {
	cause := errors.New("cause")
	e := Refused(503, "busy", "http://h", time.Second).Wrap(cause)
	te := e.TurnError()
	if te.GetKind() != "httpConnectionFailed" || te.GetHttpStatus() != 503 || te.GetMessage() != "unexpected status 503 Service Unavailable: busy, url: http://h" || !errors.Is(e, cause) {
		t.Errorf("%v", te)
	}
	if te := Disconnected("x").TurnError(); te.HttpStatus != nil || te.GetAdditionalDetails() != "x" {
		t.Errorf("%v", te)
	}
	if got := Refused(418, strings.Repeat("é", 2000), "u", 0).Message; len(got) > 1200 || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes", len(got))
	}
}

func TestAskedDelay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"Please try again in 11.054s. See": 11054 * time.Millisecond, "try again in 28ms": 28 * time.Millisecond, "Try again in 35 seconds": 35 * time.Second, "later": 0, "try again in 99999999999s": 0,
	} {
		if got := askedDelay(text); got != want {
			t.Errorf("askedDelay(%q) = %v", text, got)
		}
	}
}
