package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// listen opens a listener on the host and returns its address.
func listen(e *Env, network, addr string) string {
	l, err := net.Listen(network, addr)
	e.must(err)
	e.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

// unsupervised says why sockets of the host cannot be refused when they are connected to.
func unsupervised(e *Env) string {
	for _, g := range e.Report.Gaps {
		if g.Guarantee == sandbox.GapUnixSockets && e.Level != sandbox.FullAccess {
			return g.Why
		}
	}
	return ""
}

// ownSockets are small programs in Python.
var ownSockets = map[string]string{
	"a loop that another thread wakes": `
import asyncio, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def f(): return 7
assert asyncio.run_coroutine_threadsafe(f(), loop).result(5) == 7
`,
	"a server on a unix socket and one on loopback": `
import asyncio, os, tempfile
async def serve(r, w):
    w.write(await r.readline()); await w.drain(); w.close()
async def main():
    p = os.path.join(tempfile.mkdtemp(), 's')
    a = await asyncio.start_unix_server(serve, p)
    b = await asyncio.start_server(serve, '127.0.0.1', 0)
    for c in (asyncio.open_unix_connection(p), asyncio.open_connection(*b.sockets[0].getsockname())):
        r, w = await c
        w.write(b'x\\n'); assert await r.readline() == b'x\\n'
asyncio.run(main())
`,
	"a manager process": `
import multiprocessing as m
d = m.get_context('fork').Manager().dict()
d['a'] = 1
assert d['a'] == 1
`,
	"an abstract name and a stale file": `
import socket, os, tempfile
l = socket.socket(socket.AF_UNIX); l.bind('\\0heddle-own'); l.listen()
socket.socket(socket.AF_UNIX).connect('\\0heddle-own')
p = os.path.join(tempfile.mkdtemp(), 's')
l = socket.socket(socket.AF_UNIX); l.bind(p); l.close()
try: socket.socket(socket.AF_UNIX).connect(p)
except ConnectionRefusedError: pass
else: raise SystemExit(1)
`,
}

func freshSocket(e *Env) string {
	path := filepath.Join(e.Outside, "s.sock")
	_ = os.Remove(path)
	return path
}

var networkRows = []Row{
	{"N01", "connect to the host's loopback", "DDA", func(e *Env) Verdict {
		return succeeded(e, e.Attack("dial", "tcp", listen(e, "tcp", "127.0.0.1:0")))
	}, nil},
	{"N01b", "the same with full network", "AAA", func(e *Env) Verdict {
		s := e.Acquire(sandbox.Policy{Net: sandbox.NetFull})
		return succeeded(e, e.RunIn(s, sandbox.Cmd{Argv: []string{e.Tool, "dial", "tcp", listen(e, "tcp", "127.0.0.1:0")}}))
	}, nil},
	{"N01c", "connect to the host by every address it has, and send to it", "DDA", hostAddresses, nil},
	{"N02", "reach the metadata address, private ranges and the internet", "DD-", refuse("reach", "169.254.169.254:80", "10.0.0.1:80", "172.16.0.1:80",
		"192.168.0.1:80", "100.64.0.1:80", "8.8.8.8:53", "[fd00::1]:80", "[2001:4860:4860::8888]:53"), nil},
	{"N03", "connect to an abstract socket of the host", "DDA", func(e *Env) Verdict {
		return succeeded(e, e.Attack("dial", "unix", listen(e, "unix", fmt.Sprintf("@heddle-n03-%d", os.Getpid()))))
	}, nil},
	{"N04", "see a socket in /run", "DD-", func(e *Env) Verdict {
		o := e.Sh("find /run -type s | head -3; ls /var/run/docker.sock /run/dbus 2>/dev/null")
		if o.Stdout != "" {
			return Allowed
		}
		return Denied
	}, nil},
	{"N04b", "connect to a socket in /tmp, /dev/shm and /run", "DDA", func(e *Env) Verdict {
		v := Denied
		for _, dir := range []string{os.TempDir(), "/dev/shm", "/run"} {
			path := filepath.Join(dir, fmt.Sprintf("heddle-n04b-%d.sock", os.Getpid()))
			_ = os.Remove(path)
			if dir == "/run" && !e.Root {
				continue // where an ordinary user makes none
			}
			if succeeded(e, e.Attack("dial", "unix", listen(e, "unix", path))) == Allowed {
				v = Allowed
			}
			_ = os.Remove(path)
		}
		return v
	}, nil},
	{"N04c", "connect to a socket in the host's /tmp, where that is shown", "DDA", func(e *Env) Verdict {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("heddle-n04c-%d.sock", os.Getpid()))
		_ = os.Remove(path)
		defer os.Remove(path)
		addr := listen(e, "unix", path)
		return succeeded(e, e.RunIn(e.Acquire(sandbox.Policy{Tmp: sandbox.TmpHost}), sandbox.Cmd{Argv: []string{e.Tool, "dial", "unix", addr}}))
	}, nil},
	{"N05", "connect to a socket elsewhere on disk", "DDA", func(e *Env) Verdict {
		addr := listen(e, "unix", freshSocket(e))
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 42}}) // made after the socket
		return succeeded(e, e.RunIn(s, sandbox.Cmd{Argv: []string{e.Tool, "dial", "unix", addr}}))
	}, nil},
	{"N05c", "the same, bound after the sandbox was made", "DDA", func(e *Env) Verdict {
		path := listen(e, "unix", freshSocket(e))
		o := e.Attack("dial", "unix", path)
		if e.Level != sandbox.FullAccess && (len(o.Violations) != 1 || o.Violations[0].Path != path) {
			e.T.Errorf("refusal was not reported: %+v", o.Violations)
		}
		return succeeded(e, o)
	}, unsupervised},
	{"N05d", "the same by a relative name, a link and a name in /proc", "DDA", func(e *Env) Verdict {
		dir := filepath.Dir(listen(e, "unix", freshSocket(e)))
		v := Denied
		for _, script := range []string{"cd $OUTSIDE && $TOOL dial unix s.sock", "ln -s $OUTSIDE/s.sock $T/s && $TOOL dial unix $T/s",
			"cd $OUTSIDE && $TOOL dial unix /proc/self/cwd/s.sock", "exec 7<$OUTSIDE && $TOOL dial unix /proc/self/fd/7/s.sock"} {
			o := e.Sh("TOOL=" + e.Tool + "; T=$(mktemp -d); " + strings.ReplaceAll(script, "$OUTSIDE", dir))
			if o.ExitCode == 0 {
				v = Allowed
			} else if v == Allowed {
				e.T.Errorf("%s: %s%s", script, o.Stdout, o.Stderr)
			}
		}
		return v
	}, unsupervised},
	{"N05e", "change the address while the call is judged", "DD-", func(e *Env) Verdict {
		path := listen(e, "unix", freshSocket(e))
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 43}})
		return succeeded(e, e.RunIn(s, sandbox.Cmd{Argv: []string{e.Tool, "dial-race", path}}))
	}, unsupervised},
	{"N05f", "send a datagram to a socket of the host", "DDA", func(e *Env) Verdict {
		path := freshSocket(e)
		c, err := net.ListenPacket("unixgram", path)
		e.must(err)
		defer c.Close()
		e.must(os.Chmod(path, 0o777))
		o := e.Attack("send-unixgram", path)
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, _, err := c.ReadFrom(make([]byte, 8)); err == nil {
			return Allowed
		}
		if o.ExitCode == 0 {
			e.T.Error("sent, but nothing came")
		}
		return Denied
	}, unsupervised},
	{"N05g", "programs that talk through sockets of their own", "AAA", func(e *Env) Verdict {
		for what, script := range ownSockets {
			o := e.RunIn(e.S, shell("cd ${TMPDIR:-/tmp} && exec python3 -c \""+script+"\""))
			if o.ExitCode != 0 {
				e.T.Logf("%s: %+v", what, o)
				return Denied
			}
		}
		return Allowed
	}, func(*Env) string {
		if _, err := exec.LookPath("python3"); err != nil {
			return "there is no python3"
		}
		return ""
	}},
	{"N05b", "a socket of its own in the workspace", "DAA", func(e *Env) Verdict {
		return succeeded(e, e.Attack("own-unix", filepath.Join(e.WS, "own.sock")))
	}, nil},
	{"N06", "raw socket", "DD-", refuse("raw"), nil},
	{"N07", "packet socket", "DD-", refuse("packet"), nil},
	{"N08", "vsock", "DD-", refuse("vsock"), nil},
	{"N09", "kernel crypto socket", "DD-", refuse("alg"), nil},
	{"N10", "netlink socket", "AAA", try("netlink"), nil},
	{"N11", "send to a name server", "DD-", func(e *Env) Verdict {
		if e.Sh("exec 3<>/dev/udp/8.8.8.8/53 && echo x >&3").ExitCode == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"N12", "serve and connect on 127.0.0.1", "AAA", try("loopback"), nil},
	{"N12c", "the same on ::1, and datagrams on 127.0.0.1", "AAA", try("loopback6"), func(*Env) string {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			return "the kernel has no IPv6 here"
		}
		l.Close()
		return ""
	}},
	{"N12b", "a unix socket of its own in /tmp", "AAA", func(e *Env) Verdict {
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{e.Tool, "own-unix", filepath.Join(os.TempDir(), fmt.Sprintf("n12b-%d", os.Getpid()))}})
		return succeeded(e, o)
	}, nil},
}

// hostAddresses listens on the host and counts what arrives.
func hostAddresses(e *Env) Verdict {
	l, err := net.Listen("tcp", ":0")
	e.must(err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	d, err := net.ListenPacket("udp", fmt.Sprint(":", port))
	e.must(err)
	defer d.Close()
	addrs, err := net.InterfaceAddrs()
	e.must(err)
	args := []string{"each"}
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP; !ip.IsLinkLocalUnicast() {
			args = append(args, net.JoinHostPort(ip.String(), fmt.Sprint(port)))
		}
	}
	o := e.Attack(args...)
	v := Denied
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if c, err := l.Accept(); err == nil {
		c.Close()
		v = Allowed
	}
	_ = d.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, _, err := d.ReadFrom(make([]byte, 8)); (err == nil) != (v == Allowed) {
		e.T.Errorf("TCP %c, a datagram: %v, %s", v, err, o.Stdout)
		return Allowed
	}
	return v
}
