package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// listen opens a listener of the control plane: unix:///PATH with mode 0600, or
// [tcp://]HOST:PORT. A TCP listener that other hosts can reach must use TLS
// unless insecure is set.
func listen(address string, secured, insecure bool) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return listenUnix(path)
	}
	hostPort := strings.TrimPrefix(address, "tcp://")
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, usageError(fmt.Errorf("listen address %q: want unix:///PATH or HOST:PORT", address))
	}
	if !secured && !insecure && !isLoopback(host) {
		return nil, usageError(fmt.Errorf("listen address %s can be reached from other hosts and is not protected: "+
			"give --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1, or accept the risk with --insecure", address))
	}
	l, err := net.Listen("tcp", hostPort)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// listenUnix replaces a socket that nobody listens on any more.
func listenUnix(path string) (net.Listener, error) {
	if path == "" {
		return nil, usageError(errors.New("listen address unix:// needs a path"))
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen on %s: another process listens there", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}
