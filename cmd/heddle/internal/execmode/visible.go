package execmode

import (
	"fmt"
	"strings"
	"unicode"
)

// ours are the control sequences that a renderer writes itself.
var ours = strings.NewReplacer(string(bold), "\x00b", string(dim), "\x00d", string(red), "\x00r", string(green), "\x00g", reset, "\x00-")

var ansi = strings.NewReplacer("\x00b", string(bold), "\x00d", string(dim), "\x00r", string(red), "\x00g", string(green), "\x00-", reset)

// visible makes text harmless to a terminal. What a model, a command or a file
// name puts there must not clear the screen, set the title or the clipboard,
// or show something else than was run: control characters and those that turn
// the direction of writing are spelled out. Line ends and tabs stay; styles of
// the renderer's own stay where colour is on.
func visible(text string, color bool) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x00", `\x00`)
	if color {
		text = ours.Replace(text)
	}
	var b strings.Builder
	for _, c := range text {
		switch {
		case c == '\n' || c == '\t' || c == 0:
			b.WriteRune(c)
		case c == '\r':
			b.WriteString(`\r`)
		case c < 0x80 && unicode.IsControl(c):
			fmt.Fprintf(&b, `\x%02x`, c)
		case unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c):
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	if color {
		return ansi.Replace(b.String())
	}
	return b.String()
}
