package sandbox

import (
	"path/filepath"
	"slices"
	"sync"
)

// maxLed bounds what is remembered of denied paths that lead over links.
const maxLed = 4096

// ledTo remembers where denied paths led over links when they were seen first, before a command could put another link
// in the place of one: that stays denied for as long as the manager lives. What a command made them lead to later does
// not, or it could deny for good what it likes.
type ledTo struct {
	mu    sync.Mutex
	first map[string]string // empty for those that led nowhere else
}

// with returns denied paths with what they led to first. The zero value is ready.
func (l *ledTo) with(list []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = map[string]string{}
	}
	out := slices.Clone(list)
	for _, d := range list {
		led, known := l.first[d]
		if !known && len(l.first) < maxLed {
			if real, err := filepath.EvalSymlinks(d); err == nil && real != d && real != "/" {
				led = real
			}
			l.first[d] = led
		}
		if led != "" && !slices.Contains(out, led) {
			out = append(out, led)
		}
	}
	return out
}
