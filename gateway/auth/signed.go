package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Bounds of signed bearer tokens.
const (
	// DefaultClockSkew is how far the clocks of the signer and of this machine
	// may differ.
	DefaultClockSkew = 30 * time.Second
	// MaxClockSkew bounds what can be asked for: a token that has expired for
	// longer is never taken.
	MaxClockSkew = 24 * time.Hour
	minSecret    = 32
	maxSecret    = 64 << 10
)

// SignedConfig says which signed bearer tokens are taken.
type SignedConfig struct {
	// SecretFile holds the secret that tokens are signed with, at least 32 bytes
	// without the white space around them.
	SecretFile string
	// Issuer and Audience, unless empty, are what the claims iss and aud must
	// say.
	Issuer, Audience string
	// ClockSkew is allowed on exp and nbf; 0 allows none.
	ClockSkew time.Duration
}

// Signed takes JSON web tokens: signed with HMAC-SHA-256 and nothing else, with
// a time at which they expire. A connection that was made stays when its token
// expires.
type Signed struct {
	secret []byte
	parser *jwt.Parser
}

// NewSigned reads the secret.
func NewSigned(cfg SignedConfig) (*Signed, error) {
	if cfg.ClockSkew < 0 || cfg.ClockSkew > MaxClockSkew {
		return nil, fmt.Errorf("a clock skew of %s: want 0 to %s", cfg.ClockSkew, MaxClockSkew)
	}
	secret, err := readSecret(cfg.SecretFile)
	if err != nil {
		return nil, err
	}
	opts := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithLeeway(cfg.ClockSkew), jwt.WithStrictDecoding(),
	}
	if cfg.Issuer != "" {
		opts = append(opts, jwt.WithIssuer(cfg.Issuer))
	}
	if cfg.Audience != "" {
		opts = append(opts, jwt.WithAudience(cfg.Audience))
	}
	return &Signed{secret: secret, parser: jwt.NewParser(opts...)}, nil
}

// Check returns nil for a request with a token that is taken. Its error says
// what is wrong, without any of the token; what a token claims is looked at only
// when its signature is right.
func (s *Signed) Check(r *http.Request) error {
	text, err := bearer(r)
	if err != nil {
		return err
	}
	token, err := s.parser.ParseWithClaims(text, &jwt.RegisteredClaims{}, func(*jwt.Token) (any, error) { return s.secret, nil })
	if err != nil {
		return reason(err)
	}
	// No extension of the format is known here, so none may be required.
	if _, ok := token.Header["crit"]; ok {
		return errInvalid
	}
	return nil
}

// reason leaves out what the parser says beside the kind of its error.
func reason(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return errors.New("the bearer token has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("the bearer token is not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return errors.New("the bearer token is of another issuer")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return errors.New("the bearer token is for another audience")
	}
	return errInvalid
}

func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the shared secret: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("read the shared secret: %w", err)
	}
	if len(data) > maxSecret {
		return nil, fmt.Errorf("the shared secret in %s has more than %d bytes", path, maxSecret)
	}
	secret := bytes.TrimSpace(data)
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the shared secret in %s has less than %d bytes", path, minSecret)
	}
	return secret, nil
}
