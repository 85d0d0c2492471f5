package agent

import (
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const fileHeader = "diff --git "

// priorPatch makes the kept form of a diff text that was recorded before a
// restart. Binary files have no content there.
func priorPatch(text string) turnPatch {
	var p turnPatch
	var out strings.Builder
	for len(text) > 0 {
		part := text
		// Lines of content begin with ' ', '+', '-', '\' or '@'.
		if next := strings.Index(text[1:], "\n"+fileHeader); next >= 0 {
			part = text[:next+2]
		}
		text = text[len(part):]
		if i := strings.LastIndex(part, "\n# diff cut at "); i >= 0 && text == "" {
			part, p.truncated = part[:i+1], true
		}
		c := priorFile(part)
		if c == nil {
			p.truncated = true
			continue
		}
		p.files = append(p.files, c)
		if strings.Contains(part, "\nBinary files ") {
			p.truncated = true
		}
		head, rest, _ := strings.Cut(part, "\nindex ")
		if c.GetKind() == "move" {
			head += "\nrename from " + quoted(c.GetPreviousPath()) + "\nrename to " + quoted(c.GetPath())
		}
		if c.GetOldBlob() == c.GetNewBlob() {
			// Nothing but the name or the mode changed.
			out.WriteString(head + "\n")
			continue
		}
		out.WriteString(head + "\nindex " + rest)
	}
	p.data = []byte(out.String())
	return p
}

// priorFile reads what a part of a diff text says about its file; nil when it
// cannot be told.
func priorFile(part string) *heddlev1.ChangedFile {
	line, rest, _ := strings.Cut(part, "\n")
	names, ok := strings.CutPrefix(line, fileHeader+"a/")
	if !ok {
		return nil
	}
	c := &heddlev1.ChangedFile{Kind: "update"}
	from, to := "", ""
	for rest != "" && !strings.HasPrefix(rest, "@@ ") {
		line, rest, _ = strings.Cut(rest, "\n")
		switch {
		case strings.HasPrefix(line, "new file mode "):
			c.Kind = "add"
		case strings.HasPrefix(line, "deleted file mode "):
			c.Kind = "delete"
		case strings.HasPrefix(line, "index "):
			c.OldBlob, c.NewBlob, _ = strings.Cut(strings.TrimPrefix(line, "index "), "..")
		case strings.HasPrefix(line, "--- a/"):
			from = strings.TrimPrefix(line, "--- a/")
		case strings.HasPrefix(line, "+++ b/"):
			to = strings.TrimPrefix(line, "+++ b/")
		}
	}
	if from == "" && to == "" {
		from, to = headerNames(names)
	}
	if from == "" && to == "" {
		return nil
	}
	switch c.GetKind() {
	case "add":
		c.Path, c.OldBlob = to, ""
	case "delete":
		c.Path, c.NewBlob = from, ""
	default:
		c.Path = to
		if from != to {
			c.Kind, c.PreviousPath = "move", from
		}
	}
	if c.GetPath() == "" {
		return nil
	}
	return c
}

// headerNames splits "x b/y". Where the names hold " b/" themselves, both are
// taken to be equal if they can be.
func headerNames(names string) (from, to string) {
	if half := (len(names) - len(" b/")) / 2; half > 0 && names[:half] == names[len(names)-half:] && strings.HasPrefix(names[half:], " b/") {
		return names[:half], names[:half]
	}
	if strings.Count(names, " b/") != 1 {
		return "", ""
	}
	from, to, _ = strings.Cut(names, " b/")
	return from, to
}
