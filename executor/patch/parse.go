package patch

import (
	"regexp"
	"strings"
)

const (
	markBegin  = "*** Begin Patch"
	markEnd    = "*** End Patch"
	markAdd    = "*** Add File:"
	markDelete = "*** Delete File:"
	markUpdate = "*** Update File:"
	markMove   = "*** Move to:"
	markEOF    = "*** End of File"
	markEnv    = "*** Environment ID:"
)

// unifiedHeader matches a hunk header with line numbers, which models write out
// of habit. The numbers are ignored: the context decides.
var unifiedHeader = regexp.MustCompile(`^@@ -\d+(,\d+)? \+\d+(,\d+)? @@`)

// Parse reads a patch. The error is a *RejectedError.
func Parse(text string) ([]Op, error) {
	if len(text) > MaxText {
		return nil, rejectf("invalid patch: it is %d bytes long, the limit is %d", len(text), MaxText)
	}
	p := &parser{}
	if err := p.load(text); err != nil {
		return nil, err
	}
	var ops []Op
	for {
		p.skipBlank()
		if p.done() {
			break
		}
		op, err := p.section()
		if err != nil {
			return nil, err
		}
		if ops = append(ops, op); len(ops) > MaxOps {
			return nil, rejectf("invalid patch: more than %d files", MaxOps)
		}
	}
	if len(ops) == 0 {
		return nil, rejectf("invalid patch: it changes no file")
	}
	return ops, nil
}

// parser walks over the lines between the begin and end marks.
type parser struct {
	lines []string
	pos   int
	first int // number of lines[0] in the text, from 1
}

// load splits the text, takes a heredoc wrapper off and finds the outer marks.
func (p *parser) load(text string) error {
	if n := strings.Count(text, "\n"); n > 0 && strings.Count(text, "\r\n") == n {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	lines := strings.Split(text, "\n")
	from, to := 0, len(lines)
	for from < to && strings.TrimSpace(lines[from]) == "" {
		from++
	}
	for to > from && strings.TrimSpace(lines[to-1]) == "" {
		to--
	}
	if to-from >= 2 {
		if word := heredocWord(lines[from]); word != "" && strings.TrimSpace(lines[to-1]) == word {
			from, to = from+1, to-1
		}
	}
	if from >= to || strings.TrimSpace(lines[from]) != markBegin {
		return rejectf("invalid patch: the first line of the patch must be '%s'", markBegin)
	}
	if to-from < 2 || strings.TrimSpace(lines[to-1]) != markEnd {
		return rejectf("invalid patch: the last line of the patch must be '%s'", markEnd)
	}
	p.lines, p.first = lines[from+1:to-1], from+2
	return nil
}

// heredocWord returns the delimiter when a line opens a here-document, with or
// without the command in front of it.
func heredocWord(line string) string {
	line = strings.TrimSpace(line)
	line = strings.TrimSpace(strings.TrimPrefix(line, "apply_patch"))
	rest, ok := strings.CutPrefix(line, "<<")
	if !ok {
		return ""
	}
	word := strings.Trim(strings.TrimPrefix(rest, "-"), `'" `)
	if word == "" || strings.ContainsAny(word, " \t'\"") {
		return ""
	}
	return word
}

func (p *parser) done() bool   { return p.pos >= len(p.lines) }
func (p *parser) number() int  { return p.first + p.pos }
func (p *parser) peek() string { return p.lines[p.pos] }

func (p *parser) skipBlank() {
	for !p.done() && strings.TrimSpace(p.peek()) == "" {
		p.pos++
	}
}

// section reads one "*** ... File:" section.
func (p *parser) section() (Op, error) {
	line, number := strings.TrimSpace(p.peek()), p.number()
	if strings.HasPrefix(line, markEnv) {
		p.pos++
		p.skipBlank()
		if p.done() {
			return Op{}, rejectf("invalid patch: it changes no file")
		}
		line, number = strings.TrimSpace(p.peek()), p.number()
	}
	op := Op{Line: number}
	for mark, kind := range map[string]Kind{markAdd: Add, markDelete: Delete, markUpdate: Update} {
		if rest, ok := strings.CutPrefix(line, mark); ok {
			op.Kind, op.Path = kind, strings.TrimSpace(rest)
		}
	}
	if op.Kind == 0 {
		return op, rejectf("invalid hunk at line %d: '%s' is not a valid hunk header. Valid hunk headers: '%s PATH', '%s PATH', '%s PATH'",
			number, line, markAdd, markDelete, markUpdate)
	}
	if op.Path == "" || strings.ContainsRune(op.Path, 0) {
		return op, rejectf("invalid hunk at line %d: the path is missing or not usable", number)
	}
	p.pos++
	switch op.Kind {
	case Add:
		op.Content = p.added()
		return op, nil
	case Update:
		return p.update(op)
	case Delete:
	}
	return op, nil
}

// added reads the lines of a new file. A blank line that more added lines
// follow stands for an empty line of the file.
func (p *parser) added() string {
	var b strings.Builder
	blanks := 0
	for ; !p.done(); p.pos++ {
		line := p.peek()
		if text, ok := strings.CutPrefix(line, "+"); ok {
			for ; blanks > 0; blanks-- {
				b.WriteByte('\n')
			}
			b.WriteString(text)
			b.WriteByte('\n')
			continue
		}
		if strings.TrimSpace(line) != "" {
			break
		}
		blanks++
	}
	return b.String()
}

func (p *parser) update(op Op) (Op, error) {
	if !p.done() {
		if to, ok := strings.CutPrefix(strings.TrimSpace(p.peek()), markMove); ok {
			if op.MoveTo = strings.TrimSpace(to); op.MoveTo == "" {
				return op, rejectf("invalid hunk at line %d: the path to move to is missing", p.number())
			}
			p.pos++
		}
	}
	for {
		p.skipBlank()
		if p.done() || isSection(p.peek()) {
			break
		}
		h, err := p.hunk(op.Path, len(op.Hunks) == 0)
		if err != nil {
			return op, err
		}
		op.Hunks = append(op.Hunks, h)
	}
	if len(op.Hunks) == 0 && op.MoveTo == "" {
		return op, rejectf("invalid hunk at line %d: the update of '%s' changes nothing", op.Line, op.Path)
	}
	return op, nil
}

func isSection(line string) bool {
	line = strings.TrimRight(line, " \t\r")
	return strings.HasPrefix(line, markAdd) || strings.HasPrefix(line, markDelete) || strings.HasPrefix(line, markUpdate)
}

// hunk reads headers and body. Only the first hunk may come without a header.
func (p *parser) hunk(path string, first bool) (Hunk, error) {
	h := Hunk{Line: p.number()}
	for !p.done() && strings.HasPrefix(strings.TrimSpace(p.peek()), "@@") && !strings.HasPrefix(p.peek(), " ") {
		line := strings.TrimSpace(p.peek())
		if !unifiedHeader.MatchString(line) {
			if text := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(line, "@@"), "@@")); text != "" {
				h.Headers = append(h.Headers, text)
			}
		}
		first = true
		p.pos++
	}
	if !first {
		return h, rejectf("invalid hunk at line %d: expected '@@' in the update of '%s', found '%s'", p.number(), path, p.peek())
	}
	for !p.done() {
		line := p.peek()
		if strings.HasPrefix(line, "***") || strings.HasPrefix(line, "@@") {
			break
		}
		if err := h.take(line, p.number()); err != nil {
			return h, err
		}
		p.pos++
	}
	if !p.done() && strings.TrimSpace(p.peek()) == markEOF {
		h.AtEnd = true
		p.pos++
	} else if !p.done() && strings.HasPrefix(p.peek(), "***") && !isSection(p.peek()) {
		return h, rejectf("invalid hunk at line %d: '%s' is not a valid hunk header. Valid hunk headers: '%s PATH', '%s PATH', '%s PATH'",
			p.number(), p.peek(), markAdd, markDelete, markUpdate)
	}
	if len(h.Lines) == h.LooseTail {
		return h, rejectf("invalid hunk at line %d: the update of '%s' has a hunk without lines", h.Line, path)
	}
	return h, nil
}

// take adds one body line. A line without any mark that is blank is an empty
// context line: editors and models strip the single space.
func (h *Hunk) take(line string, number int) error {
	if strings.TrimRight(line, "\r") == "" {
		h.Lines = append(h.Lines, Line{Mark: ' '})
		h.LooseTail++
		return nil
	}
	switch line[0] {
	case ' ', '-', '+':
		h.Lines = append(h.Lines, Line{Mark: line[0], Text: line[1:]})
		h.LooseTail = 0
		return nil
	}
	return rejectf("invalid hunk at line %d: every line must start with ' ' (context), '-' (removed) or '+' (added), found '%s'", number, line)
}
