package agent

import "testing"

func TestReviewText(t *testing.T) {
	finding := `{"title":"Bug","body":"Off by one\nsee above","code_location":{"absolute_file_path":"/x/a.txt","line_range":{"start":1,"end":2}}}`
	for name, c := range map[string]struct{ answer, want string }{
		"plain text":    {" all good \n", "all good"},
		"one finding":   {`{"findings":[` + finding + `],"overall_explanation":"Overall bad"}`, "Overall bad\n\nReview comment:\n\n- Bug - /x/a.txt:1-2\n  Off by one\n  see above"},
		"two findings":  {`{"findings":[` + finding + `,` + finding + `],"overall_explanation":"Bad"}`, "Bad\n\nFull review comments:\n\n- Bug - /x/a.txt:1-2\n  Off by one\n  see above\n\n- Bug - /x/a.txt:1-2\n  Off by one\n  see above"},
		"no finding":    {`{"findings":[],"overall_explanation":"Fine"}`, "Fine"},
		"in a fence":    {"```json\n{\"findings\":[],\"overall_explanation\":\"Fine\"}\n```", "Fine"},
		"other JSON":    {`{"a":1}`, `{"a":1}`},
		"broken JSON":   {`{"findings":[`, `{"findings":[`},
		"nothing":       {"", ""},
		"braces inside": {"use {x} here", "use {x} here"},
	} {
		if got := reviewText(c.answer); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
