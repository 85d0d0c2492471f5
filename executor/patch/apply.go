package patch

import (
	"strings"
	"unicode/utf8"
)

// content is a file as lines without their newline (a carriage return stays).
type content struct {
	lines []string
	// crlf is set when most lines end with CR LF; the last line then carries a
	// CR in lines even if the file has no final newline.
	crlf bool
	// open is set when the last line has no newline.
	open bool
	// utf8 is false for a file in some other encoding.
	utf8 bool
}

func split(data string) content {
	c := content{utf8: utf8.ValidString(data)}
	if data == "" {
		return c
	}
	c.crlf = 2*strings.Count(data, "\r\n") > strings.Count(data, "\n")
	body, closed := strings.CutSuffix(data, "\n")
	c.open = !closed
	c.lines = strings.Split(body, "\n")
	if last := len(c.lines) - 1; c.open && c.crlf && !strings.HasSuffix(c.lines[last], "\r") {
		c.lines[last] += "\r"
	}
	return c
}

func (c content) join() string {
	if len(c.lines) == 0 {
		return ""
	}
	s := strings.Join(c.lines, "\n")
	if !c.open {
		return s + "\n"
	}
	if c.crlf {
		s = strings.TrimSuffix(s, "\r")
	}
	return s
}

// edit is a hunk with its place: del lines from at are replaced by ins.
type edit struct {
	at, del int
	ins     []string
}

// apply returns data with the hunks applied, or a *RejectedError that names path.
func apply(path, data string, hunks []Hunk) (string, error) {
	c := split(data)
	edits := make([]edit, 0, len(hunks))
	cursor := 0
	for _, h := range hunks {
		e, err := c.place(path, h, cursor)
		if err != nil {
			return "", err
		}
		edits = append(edits, e)
		cursor = e.at + e.del
	}
	out := content{crlf: c.crlf, open: c.open, utf8: c.utf8}
	next := 0
	for _, e := range edits {
		out.lines = append(out.lines, c.lines[next:e.at]...)
		out.lines = append(out.lines, e.ins...)
		next = e.at + e.del
	}
	out.lines = append(out.lines, c.lines[next:]...)
	return out.join(), nil
}

// place finds where a hunk belongs, at or after line from.
func (c content) place(path string, h Hunk, from int) (edit, error) {
	narrowed := false
	for _, header := range h.Headers {
		next := findHeader(c.lines, header, from)
		if next < 0 {
			return edit{}, rejectf("Failed to find context '%s' in %s", header, path)
		}
		from, narrowed = next, true
	}
	old := h.old()
	if len(old) == h.LooseTail {
		h.Lines = h.Lines[:len(h.Lines)-h.LooseTail]
		old = nil
	}
	if len(old) == 0 {
		at := len(c.lines)
		if narrowed && !h.AtEnd {
			at = from
		}
		return c.fill(path, h, at)
	}
	at := find(c.lines, old, from, h.AtEnd)
	if at < 0 && narrowed {
		// The line of the header may be repeated as the first context line.
		at = find(c.lines, old, from-1, h.AtEnd)
	}
	if at < 0 && h.LooseTail > 0 {
		h.Lines = h.Lines[:len(h.Lines)-h.LooseTail]
		h.LooseTail = 0
		return c.place(path, Hunk{Lines: h.Lines, AtEnd: h.AtEnd, Line: h.Line}, from)
	}
	if at < 0 {
		return edit{}, rejectf("Failed to find expected lines in %s:\n%s", path, strings.Join(old, "\n"))
	}
	return c.fill(path, h, at)
}

// old returns the lines that the file must have.
func (h Hunk) old() []string {
	var old []string
	for _, l := range h.Lines {
		if l.Mark != '+' {
			old = append(old, l.Text)
		}
	}
	return old
}

// fill makes the edit at its place: context lines keep the file's own bytes,
// added lines get the line end of their surroundings.
func (c content) fill(path string, h Hunk, at int) (edit, error) {
	e := edit{at: at}
	for _, l := range h.Lines {
		switch l.Mark {
		case ' ':
			e.ins = append(e.ins, c.lines[at+e.del])
			e.del++
		case '-':
			e.del++
		case '+':
			text, err := c.encode(path, l.Text)
			if err != nil {
				return e, err
			}
			e.ins = append(e.ins, text+c.ending(at+e.del))
		}
	}
	return e, nil
}

// ending returns what stands before the newline near a line.
func (c content) ending(at int) string {
	if len(c.lines) == 0 {
		return ""
	}
	near := min(max(at-1, 0), len(c.lines)-1)
	if strings.HasSuffix(c.lines[near], "\r") {
		return "\r"
	}
	return ""
}

// encode brings an added line into the file's encoding.
func (c content) encode(path, text string) (string, error) {
	if c.crlf {
		text = strings.TrimSuffix(text, "\r")
	}
	if c.utf8 {
		return text, nil
	}
	if strings.ContainsRune(text, utf8.RuneError) {
		return "", rejectf("Cannot write a replacement character into %s, which is not UTF-8; leave such lines as context", path)
	}
	if latin, ok := toLatin1(text); ok {
		return latin, nil
	}
	return text, nil
}
