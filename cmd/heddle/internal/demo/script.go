package demo

import "fmt"

// Marks by which the demo finds its commands among the recorded items.
const (
	markTest    = "sh slug_test.sh"
	markWrite   = "echo escaped >"
	markConnect = "/dev/tcp/127.0.0.1/"
	// patched is a line that only the fixed program has.
	patched = "tr '[:upper:]' '[:lower:]' | tr -s ' ' '-'"
)

// script is what the scripted model says and does.
func script(p *place, port int) []byte {
	return fmt.Appendf(nil, ``, p.outside, port)
}
