package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/heddle-dev/heddle/gateway/auth"
	"github.com/heddle-dev/heddle/gateway/transport"
)

// Modes of --ws-auth.
const (
	capabilityToken = "capability-token"
	signedToken     = "signed-bearer-token"
)

// authFlags say which clients of a listener are served.
type authFlags struct {
	mode                   string
	tokenFile, tokenSHA256 string
	secretFile             string
	issuer, audience       string
	skewSeconds            uint64
	given                  func(name string) bool
}

func (f *authFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "ws-auth", "", "`mode` of authentication for ws clients: capability-token or signed-bearer-token")
	fs.StringVar(&f.tokenFile, "ws-token-file", "", "`file` that holds the capability token")
	fs.StringVar(&f.tokenSHA256, "ws-token-sha256", "", "SHA-256 of the capability token, in `hex`")
	fs.StringVar(&f.secretFile, "ws-shared-secret-file", "", "`file` with the secret, 32 bytes or more, that signs the bearer tokens (JWT, HS256)")
	fs.StringVar(&f.issuer, "ws-issuer", "", "`issuer` (iss) that signed bearer tokens must name")
	fs.StringVar(&f.audience, "ws-audience", "", "`audience` (aud) that signed bearer tokens must name")
	fs.Uint64Var(&f.skewSeconds, "ws-max-clock-skew-seconds", uint64(auth.DefaultClockSkew/time.Second),
		"`seconds` by which the clock of the signer may differ")
	f.given = fs.Changed
}

// anyGiven reports whether one of the flags was given.
func (f *authFlags) anyGiven(names ...string) bool {
	for _, name := range names {
		if f.given(name) {
			return true
		}
	}
	return false
}

// check returns who decides; nil serves everybody.
func (f *authFlags) check() (transport.Authenticator, error) {
	capability := f.anyGiven("ws-token-file", "ws-token-sha256")
	signed := f.anyGiven("ws-shared-secret-file", "ws-issuer", "ws-audience", "ws-max-clock-skew-seconds")
	switch {
	case f.mode == "" && !capability && !signed:
		return nil, nil
	case f.mode == "":
		return nil, fmt.Errorf("the --ws-* flags need --ws-auth %s or %s", capabilityToken, signedToken)
	case f.mode == capabilityToken && signed:
		return nil, fmt.Errorf("--ws-shared-secret-file, --ws-issuer, --ws-audience and --ws-max-clock-skew-seconds go with --ws-auth %s", signedToken)
	case f.mode == capabilityToken:
		return f.capability()
	case f.mode == signedToken && capability:
		return nil, fmt.Errorf("--ws-token-file and --ws-token-sha256 go with --ws-auth %s", capabilityToken)
	case f.mode == signedToken:
		return f.signed()
	}
	return nil, fmt.Errorf("--ws-auth %q: want %s or %s", f.mode, capabilityToken, signedToken)
}

func (f *authFlags) capability() (transport.Authenticator, error) {
	switch {
	case f.tokenFile != "" && f.tokenSHA256 != "":
		return nil, errors.New("give --ws-token-file or --ws-token-sha256, not both")
	case f.tokenFile != "":
		return auth.TokenFromFile(f.tokenFile)
	case f.tokenSHA256 != "":
		return auth.TokenFromSHA256(f.tokenSHA256)
	}
	return nil, fmt.Errorf("--ws-auth %s needs --ws-token-file or --ws-token-sha256", capabilityToken)
}

func (f *authFlags) signed() (transport.Authenticator, error) {
	if f.secretFile == "" {
		return nil, fmt.Errorf("--ws-auth %s needs --ws-shared-secret-file", signedToken)
	}
	if limit := uint64(auth.MaxClockSkew / time.Second); f.skewSeconds > limit {
		return nil, fmt.Errorf("--ws-max-clock-skew-seconds %d: want at most %d", f.skewSeconds, limit)
	}
	signed, err := auth.NewSigned(auth.SignedConfig{
		SecretFile: f.secretFile, Issuer: f.issuer, Audience: f.audience, ClockSkew: time.Duration(f.skewSeconds) * time.Second,
	})
	if err != nil {
		return nil, err // a nil *Signed is not a nil Authenticator
	}
	return signed, nil
}
