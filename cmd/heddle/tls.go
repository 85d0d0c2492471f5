package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// tlsFlags name the files of mutual TLS. Servers and clients of the fleet take
// the same three.
type tlsFlags struct{ cert, key, ca string }

func (f *tlsFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.cert, "tls-cert", "", "certificate `file` (PEM) of this process")
	fs.StringVar(&f.key, "tls-key", "", "private key `file` (PEM) of --tls-cert")
	fs.StringVar(&f.ca, "tls-ca", "", "`file` (PEM) with the authority that the other side must be signed by")
}

// given reports whether TLS is asked for; half of it is an error.
func (f *tlsFlags) given() (bool, error) {
	switch {
	case f.cert == "" && f.key == "" && f.ca == "":
		return false, nil
	case f.cert != "" && f.key != "" && f.ca != "":
		return true, nil
	}
	return false, errors.New("mutual TLS: --tls-cert, --tls-key and --tls-ca go together")
}

// load returns the configuration for both directions: each side shows its
// certificate and checks the other's.
func (f *tlsFlags) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate: %w", err)
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, fmt.Errorf("load TLS authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("TLS authority %s holds no certificate", f.ca)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}, nil
}
