package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME.key.
func (a *authority) issue(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.next++
	template.SerialNumber = big.NewInt(a.next)
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// flags are the TLS flags of a role with a certificate of its own.
func (a *authority) flags(name string) []string {
	a.t.Helper()
	a.issue(name, &x509.Certificate{
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	path := func(file string) string { return filepath.Join(a.dir, file) }
	return []string{"--tls-cert", path(name + ".pem"), "--tls-key", path(name + ".key"), "--tls-ca", path("ca.pem")}
}

// The fleet over mutual TLS with a join token: a turn works; an executor
// without the token and a gateway with a certificate of another authority are
// kept out.
func TestFleetOverTLS(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	ca := newAuthority(t, w.home)
	token := filepath.Join(w.home, "token")
	w.write(token, "let-me-in\n")
	address := freePort(t)
	with := func(args, more []string) []string { return append(args, more...) }

	cp := w.role(with([]string{"controlplane", "--listen", address, "--join-token-file", token}, ca.flags("cp"))...)
	w.awaitSocket()
	none := w.role(with([]string{"executor", "--connect", address, "--state-dir", filepath.Join(w.home, "executor-none"), "--id", "none"}, ca.flags("none"))...)
	w.awaitLog(none, "join token")
	if data, _ := os.ReadFile(cp); strings.Contains(string(data), "executor_id=none") && strings.Contains(string(data), "executor registered") {
		t.Error("an executor without the token was registered")
	}
	stranger := newAuthority(t, t.TempDir())
	if err := handshake(address, stranger.flags("x")); err == nil {
		t.Error("a certificate of another authority was accepted")
	}
	if err := handshake(address, ca.flags("y")); err != nil {
		t.Errorf("a certificate of the authority was refused: %v", err)
	}
	w.role(with([]string{"executor", "--connect", address, "--state-dir", filepath.Join(w.home, "executor-a"), "--id", "a", "--join-token-file", token}, ca.flags("a"))...)
	app := w.client(with([]string{"gateway", "--connect", address, "--listen", "stdio://"}, ca.flags("gw"))...)
	thread := app.startThread()
	if status := app.awaitTurn(app.startTurn(thread, "please WRITE"), 60*time.Second); status != "completed" {
		t.Errorf("turn %s", status)
	}
	if data, err := os.ReadFile(filepath.Join(w.workspace, "made.txt")); err != nil || string(data) != "data\n" {
		t.Errorf("made.txt: %q, %v", data, err)
	}
	app.close()
}

// handshake makes a TLS connection and reads: with TLS 1.3 a server's refusal of
// the client's certificate comes with the first read.
func handshake(address string, flags []string) error {
	cert, err := tls.LoadX509KeyPair(flags[1], flags[3])
	if err != nil {
		return err
	}
	c, err := tls.Dial("tcp", address, &tls.Config{
		Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true, NextProtos: []string{"h2"},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 9))
	return err
}
