package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// remote returns the dialer of a control plane at an address. The call that
// dials does not wait: the session reports what is wrong with the first attempt.
func remote(address string, tls *tlsFlags) (func(context.Context) (*grpc.ClientConn, error), error) {
	secured, err := tls.given()
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if secured {
		cfg, err := tls.load()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(cfg)
	}
	target := strings.TrimPrefix(address, "tcp://")
	if !strings.HasPrefix(target, "unix://") {
		target = "dns:///" + target
	}
	return func(context.Context) (*grpc.ClientConn, error) {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 20 * time.Second, Timeout: 10 * time.Second,
		}))
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
		return conn, nil
	}, nil
}
