package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// site is a server on the host's loopback; its address is what a test may list.
func site(t *testing.T, secure bool, answer string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func proxied(ws string, allow ...string) sandbox.Policy {
	return sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, Net: sandbox.NetProxied, Proxy: netproxy.Lists{Allow: allow}}
}

// seen collects decisions.
type seen struct {
	mu   sync.Mutex
	list []netproxy.Decision
}

func (s *seen) add(d netproxy.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, d)
}

func TestProxiedNetwork(t *testing.T) {
	plain, secure, other := site(t, false, "plain page"), site(t, true, "secure page"), site(t, false, "secret")
	m := manager(t)
	for _, level := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		t.Run(level.String(), func(t *testing.T) {
			p := proxied(t.TempDir(), plain, secure)
			p.Level = level
			s := acquire(t, m, p)
			for _, row := range []struct{ name, script, want string }{
				{"plain", "curl -sS --noproxy '' http://" + plain, "plain page"},
				{"CONNECT", "curl -sSk --noproxy '' https://" + secure, "secure page"},
				{"CONNECT for plain", "curl -sSp --noproxy '' http://" + plain, "plain page"},
				{"SOCKS", "curl -sS --noproxy '' -x $ALL_PROXY http://" + plain, "plain page"},
				{"SOCKS and TLS", "curl -sSk --noproxy '' -x $all_proxy https://" + secure, "secure page"},
			} {
				if o := run(t, s, sh(row.script)); o.out != row.want {
					t.Errorf("%s: %q %q", row.name, o.out, o.err)
				}
			}
			o := run(t, s, sh("curl -sSi --noproxy '' http://"+other))
			if !strings.Contains(o.out, "403") || !strings.Contains(strings.ToLower(o.out), "x-proxy-error: address-not-public") || strings.Contains(o.out, "secret") {
				t.Errorf("other site: %q %q", o.out, o.err)
			}
			if o := run(t, s, sh("curl -sS --noproxy '*' http://"+plain)); o.ExitCode != 7 {
				t.Errorf("directly: exit %d, %q", o.ExitCode, o.err)
			}
		})
	}
}

func TestProxiedAsks(t *testing.T) {

	s := acquire(t, manager(t), proxied(t.TempDir()))
	var got seen
	asked := make(chan netproxy.Request, 4)
	cmd := func(script string, allow bool) sandbox.Cmd {
		c := sh(script)
		c.Network = sandbox.Network{Decided: got.add, Ask: func(_ context.Context, r netproxy.Request) (netproxy.Verdict, error) {
			asked <- r
			return netproxy.Verdict{Allowed: allow, By: "client", Reason: "declined"}, nil
		}}
		return c
	}
	o := run(t, s, cmd("curl -sS http://nowhere.invalid", false))
	if r := <-asked; r != (netproxy.Request{Host: "nowhere.invalid", Port: 80, Protocol: netproxy.ProtocolHTTP}) {
		t.Errorf("asked for %+v", r)
	}
	if !strings.Contains(o.out, "declined") {
		t.Errorf("%q %q", o.out, o.err)
	}
	// An accepted name does not open the host's loopback.
	o = run(t, s, cmd("curl -sS --noproxy '' http://localhost", true))
	<-asked
	if !strings.Contains(o.out, "is loopback") {
		t.Errorf("%q %q", o.out, o.err)
	}
	var by []string
	for _, d := range got.list {
		by = append(by, fmt.Sprint(d.Host, " ", d.Allowed, " ", d.By))
	}
	if want := []string{"nowhere.invalid false client", "localhost true client", "localhost false address-not-public"}; !slices.Equal(by, want) {
		t.Errorf("decisions %q", by)
	}
}

// TestProxiedKillEndsAsking: the end of a command ends the question that it waits for.
func TestProxiedKillEndsAsking(t *testing.T) {
	s := acquire(t, manager(t), proxied(t.TempDir()))
	ended := make(chan error, 1)
	c := sh("curl -sS http://nowhere.invalid")
	c.Env = []string{"PATH=/usr/bin:/bin"}
	asked := make(chan struct{})
	c.Network.Ask = func(ctx context.Context, _ netproxy.Request) (netproxy.Verdict, error) {
		close(asked)
		<-ctx.Done()
		ended <- ctx.Err()
		return netproxy.Verdict{}, ctx.Err()
	}
	p, err := s.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	default:
		t.Error("the question outlived its command")
	}
}

func TestProxiedEnvironment(t *testing.T) {
	s := acquire(t, manager(t), proxied(t.TempDir()))
	c := sh("env")
	c.Env = []string{"PATH=/usr/bin:/bin", "Http_Proxy=http://other:1", "HTTPS_PROXY=http://other:1", "no_proxy=*", "MAVEN_OPTS=-Xmx1g", "KEEP=1"}
	o := run(t, s, c)
	env := map[string]string{}
	for _, l := range strings.Split(o.out, "\n") {
		k, v, _ := strings.Cut(l, "=")
		env[k] = v
	}
	if strings.Contains(o.out, "other:1") || env["KEEP"] != "1" || !strings.HasPrefix(env["MAVEN_OPTS"], "-Xmx1g -Dhttp.proxyHost=127.0.0.1") {
		t.Errorf("environment:\n%s", o.out)
	}
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "npm_config_proxy", "PIP_PROXY", "YARN_HTTPS_PROXY"} {
		if !strings.HasPrefix(env[k], "http://127.0.0.1:") {
			t.Errorf("%s=%s", k, env[k])
		}
	}
	for _, k := range []string{"ALL_PROXY", "all_proxy"} {
		if !strings.HasPrefix(env[k], "socks5h://127.0.0.1:") {
			t.Errorf("%s=%s", k, env[k])
		}
	}
	if env["NO_PROXY"] != "localhost,127.0.0.1,::1" || env["no_proxy"] != env["NO_PROXY"] {
		t.Errorf("NO_PROXY=%s, no_proxy=%s", env["NO_PROXY"], env["no_proxy"])
	}
}

func TestProxiedPolicyIsChecked(t *testing.T) {
	m := manager(t)
	for name, p := range map[string]sandbox.Policy{
		"full access": {Level: sandbox.FullAccess, Net: sandbox.NetProxied},
		"bad entry":   {Level: sandbox.ReadOnly, Net: sandbox.NetProxied, Proxy: netproxy.Lists{Allow: []string{"http://x"}}},
	} {
		if _, err := m.Acquire(t.Context(), t.Name(), p); err == nil {
			t.Errorf("%s: the policy was taken", name)
		}
	}
}
