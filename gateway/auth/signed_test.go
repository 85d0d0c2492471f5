package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/heddle-dev/heddle/gateway/auth"
)

const secret = "0123456789abcdef0123456789abcdef"

type claims = map[string]any

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sign makes a token without any help of the library that reads it.
func sign(t *testing.T, key string, header, c claims) string {
	t.Helper()
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	text := part(header) + "." + part(c)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestSigned(t *testing.T) {
	file := secretFile(t, "  "+secret+"\n") // white space does not count
	synctest.Test(t, func(t *testing.T) {
		signed, err := auth.NewSigned(auth.SignedConfig{SecretFile: file, Issuer: "i", Audience: "a", ClockSkew: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().Unix()
		hs256 := claims{"alg": "HS256", "typ": "JWT"}
		with := func(change claims) claims {
			c := claims{"exp": now + 60, "iss": "i", "aud": "a"}
			for k, v := range change {
				if c[k] = v; v == nil {
					delete(c, k)
				}
			}
			return c
		}
		token := func(change claims) string { return "Bearer " + sign(t, secret, hs256, with(change)) }
		hs512, err := jwt.NewWithClaims(jwt.SigningMethodHS512, jwt.MapClaims(with(nil))).SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims(with(nil))).SignedString(jwt.UnsafeAllowNoneSignatureType)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct{ name, header, want string }{
			{"right", token(nil), ""},
			{"lower case scheme", strings.Replace(token(nil), "Bearer", "bearer", 1), ""},
			{"one audience of several", token(claims{"aud": []string{"z", "a"}}), ""},
			{"within the skew", token(claims{"exp": now - 29, "nbf": now + 29}), ""},
			{"no typ", "Bearer " + sign(t, secret, claims{"alg": "HS256"}, with(nil)), ""},
			{"nothing", "", "required"},
			{"basic", "Basic abc", "holds no bearer token"},
			{"empty", "Bearer ", "holds no bearer token"},
			{"no token at all", "Bearer abc", "not valid"},
			{"expired", token(claims{"exp": now - 31}), "expired"},
			{"no expiry", token(claims{"exp": nil}), "not valid"},
			{"expiry of text", token(claims{"exp": "never"}), "not valid"},
			{"not yet", token(claims{"nbf": now + 31}), "not valid yet"},
			{"other issuer", token(claims{"iss": "j"}), "issuer"},
			{"no issuer", token(claims{"iss": nil}), "not valid"},
			{"other audience", token(claims{"aud": "z"}), "audience"},
			{"no audience", token(claims{"aud": nil}), "not valid"},
			{"other secret", "Bearer " + sign(t, strings.Repeat("x", 32), hs256, with(claims{"exp": now - 99})), "not valid"},
			{"other algorithm", "Bearer " + hs512, "not valid"},
			{"no algorithm", "Bearer " + none, "not valid"},
			{"algorithm none over a signature", "Bearer " + sign(t, secret, claims{"alg": "none"}, with(nil)), "not valid"},
			{"an extension that must be known", "Bearer " + sign(t, secret, claims{"alg": "HS256", "crit": []string{"x"}, "x": 1}, with(nil)), "not valid"},
			{"padding", token(nil) + "=", "not valid"},
		} {
			r := &http.Request{Header: http.Header{}}
			if row.header != "" {
				r.Header.Set("Authorization", row.header)
			}
			err := signed.Check(r)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v, want %q", row.name, err, row.want)
			}
			if _, value, _ := strings.Cut(row.header, " "); err != nil && len(value) > 3 && strings.Contains(err.Error(), value) {
				t.Errorf("%s: the error shows the token", row.name)
			}
		}
	})
}

func TestSignedSettings(t *testing.T) {
	for name, row := range map[string]struct {
		cfg  auth.SignedConfig
		want string
	}{
		"short":    {auth.SignedConfig{SecretFile: secretFile(t, "  "+secret[1:]+" \n")}, "less than 32 bytes"},
		"long":     {auth.SignedConfig{SecretFile: secretFile(t, strings.Repeat("x", 65<<10))}, "more than"},
		"no file":  {auth.SignedConfig{SecretFile: filepath.Join(t.TempDir(), "none")}, "no such file"},
		"skew":     {auth.SignedConfig{SecretFile: secretFile(t, secret), ClockSkew: auth.MaxClockSkew + 1}, "clock skew"},
		"negative": {auth.SignedConfig{SecretFile: secretFile(t, secret), ClockSkew: -1}, "clock skew"},
	} {
		if _, err := auth.NewSigned(row.cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}
