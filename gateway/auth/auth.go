// Package auth decides which connections a listener of the gateway accepts.
//
// A request with an Origin header comes from a browser's page and is refused,
// so that no web site reaches a local server. With a Token, requests must carry
// it as a bearer token; it is compared by its SHA-256 in constant time. Signed
// takes JSON web tokens instead. Nothing here logs a token or returns one in an
// error; all is safe for concurrent use.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

var errInvalid = errors.New("the bearer token is not valid")

// Token is a capability: whoever knows it may connect.
type Token struct{ sum [sha256.Size]byte }

// TokenFromFile reads a token from the first line of a file.
func TokenFromFile(path string) (Token, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Token{}, fmt.Errorf("read the token file: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = strings.TrimSpace(line)
	if line == "" {
		return Token{}, fmt.Errorf("token file %s is empty", path)
	}
	return Token{sum: sha256.Sum256([]byte(line))}, nil
}

// TokenFromSHA256 takes the hexadecimal SHA-256 of a token.
func TokenFromSHA256(digest string) (Token, error) {
	raw, err := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(digest), "sha256:"))
	if err != nil || len(raw) != sha256.Size {
		return Token{}, errors.New("the token's SHA-256 must be 64 hexadecimal digits")
	}
	t := Token{}
	copy(t.sum[:], raw)
	return t, nil
}

// Check returns nil for a request that carries the token.
func (t Token) Check(r *http.Request) error {
	token, err := bearer(r)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], t.sum[:]) != 1 {
		return errInvalid
	}
	return nil
}

// bearer is the token of a request.
func bearer(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", errors.New("a bearer token is required")
	}
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errors.New("the Authorization header holds no bearer token")
	}
	return token, nil
}

// FromBrowser reports whether a request was made by a page in a browser.
func FromBrowser(r *http.Request) bool {
	_, ok := r.Header["Origin"]
	return ok
}

// DirectHost reports whether a request names its host by address, or as
// localhost. A page whose own name was made to resolve to this machine names it
// otherwise, and sends no Origin with what it reads.
func DirectHost(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}
