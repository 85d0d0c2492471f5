package store

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// Kinds of page tokens: what the position is a position in.
const (
	TokenCreated = 'c'
	TokenUpdated = 'u'
	TokenTurns   = 't'
	TokenItems   = 'i'
	// TokenSection is a place in a section; its ID is that of Place.
	TokenSection = 's'
)

// Token is a position in an ordered listing. Clients see it as an opaque
// string.
type Token struct {
	Kind byte
	// Major and Minor are the numbers that the listing is sorted by, ID the
	// last criterion.
	Major int64
	Minor uint64
	ID    string
	// Inclusive positions begin with the row itself: tokens that turn round
	// the direction of reading show their first row again.
	Inclusive bool
}

const tokenVersion = 1

// Encode returns the opaque form.
func (t Token) Encode() string {
	b := []byte{tokenVersion, t.Kind, 0}
	if t.Inclusive {
		b[2] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(t.Major))
	b = binary.BigEndian.AppendUint64(b, t.Minor)
	b = append(b, t.ID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads the opaque form of a token of the kind. The empty string is
// no token.
func ParseToken(s string, kind byte) (*Token, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 19 || b[0] != tokenVersion || b[2] > 1 {
		return nil, errdefs.New(errdefs.InvalidCursor, "invalid cursor: %s", clip(s))
	}
	if b[1] != kind {
		return nil, errdefs.New(errdefs.InvalidCursor, "invalid cursor: it belongs to another listing or sort key")
	}
	return &Token{
		Kind:      kind,
		Inclusive: b[2] == 1,
		Major:     int64(binary.BigEndian.Uint64(b[3:])),
		Minor:     binary.BigEndian.Uint64(b[11:]),
		ID:        string(b[19:]),
	}, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
