package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/gateway/httpapi"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// log is a control plane with one thread of three events.
type log struct {
	heddlev1.UnimplementedEventServiceServer
	heddlev1.UnimplementedThreadServiceServer
	session string
}

func (l *log) GetThread(ctx context.Context, req *heddlev1.GetThreadRequest) (*heddlev1.GetThreadResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("heddle-session"); len(v) > 0 {
		l.session = v[0]
	}
	if req.GetThreadId() != "t1" {
		return nil, errdefs.New(errdefs.ThreadNotFound, "thread not found: %s", req.GetThreadId())
	}
	return &heddlev1.GetThreadResponse{Thread: &heddlev1.Thread{Id: "t1", Name: "first"}}, nil
}

func (l *log) Watch(req *heddlev1.WatchRequest, stream grpc.ServerStreamingServer[heddlev1.WatchResponse]) error {
	if req.GetThreadId() != "t1" {
		return errdefs.New(errdefs.ThreadNotFound, "thread not found: %s", req.GetThreadId())
	}
	for seq := req.GetAfter() + 1; seq <= 3; seq++ {
		event := &heddlev1.Event{Seq: seq, ThreadId: "t1", Payload: &heddlev1.Event_ThreadNamed{ThreadNamed: &heddlev1.ThreadNamed{Name: "a\nb"}}}
		if err := stream.Send(&heddlev1.WatchResponse{Events: []*heddlev1.Event{event}, Head: 3}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func serve(t *testing.T, authorize func(*http.Request) error) (*httptest.Server, *log) {
	t.Helper()
	ln := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnaryInterceptor(errdefs.UnaryServer), grpc.StreamInterceptor(errdefs.StreamServer))
	l := &log{}
	heddlev1.RegisterEventServiceServer(srv, l)
	heddlev1.RegisterThreadServiceServer(srv, l)
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient("passthrough:///log", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h, err := httpapi.New(t.Context(), httpapi.Config{Conn: conn, SessionID: "s1", Authorize: authorize})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return web, l
}

func get(t *testing.T, url string, header map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestRESTCarriesTheSession(t *testing.T) {
	web, l := serve(t, nil)
	resp := get(t, web.URL+"/v1/threads/t1", nil)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.Contains(string(body), `"name":"first"`) {
		t.Fatalf("status %d, body %s", resp.StatusCode, body)
	}
	if l.session != "s1" {
		t.Fatalf("session %q reached the control plane, want s1", l.session)
	}
	if resp := get(t, web.URL+"/v1/threads/nope", nil); resp.StatusCode != http.StatusNotFound {
		t.Fatalf("unknown thread: status %d, want 404", resp.StatusCode)
	}
}

func TestEventsResumeAfterLastEventID(t *testing.T) {
	web, _ := serve(t, nil)
	resp := get(t, web.URL+"/v1/threads/t1/events", map[string]string{"Accept": "text/event-stream", "Last-Event-ID": "1"})
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatalf("content type %q", ct)
	}
	lines := bufio.NewScanner(resp.Body)
	var got []string
	for len(got) < 6 && lines.Scan() {
		if lines.Text() != "" {
			got = append(got, lines.Text())
		}
	}
	if got[0] != "id: 2" || got[1] != "event: thread_named" || !strings.HasPrefix(got[2], "data: {") || got[3] != "id: 3" {
		t.Fatalf("events after 1: %q", got)
	}
}

func TestEventsOfUnknownThreadAndBadID(t *testing.T) {
	web, _ := serve(t, nil)
	sse := map[string]string{"Accept": "text/event-stream"}
	if resp := get(t, web.URL+"/v1/threads/nope/events", sse); resp.StatusCode != http.StatusNotFound {
		t.Errorf("unknown thread: status %d, want 404", resp.StatusCode)
	}
	sse["Last-Event-ID"] = "x"
	if resp := get(t, web.URL+"/v1/threads/t1/events", sse); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("bad id: status %d, want 400", resp.StatusCode)
	}
}

func TestOriginAndAuthorization(t *testing.T) {
	web, _ := serve(t, func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer right" {
			return errors.New("a bearer token is needed")
		}
		return nil
	})
	cases := []struct {
		path   string
		header map[string]string
		want   int
	}{
		{"/v1/threads/t1", nil, http.StatusUnauthorized},
		{"/v1/threads/t1", map[string]string{"Authorization": "Bearer right"}, http.StatusOK},
		{"/v1/threads/t1", map[string]string{"Authorization": "Bearer right", "Origin": "https://example.com"}, http.StatusForbidden},
		{"/healthz", nil, http.StatusOK},
		{"/readyz", nil, http.StatusOK},
	}
	for _, c := range cases {
		if resp := get(t, web.URL+c.path, c.header); resp.StatusCode != c.want {
			t.Errorf("GET %s with %v: status %d, want %d", c.path, c.header, resp.StatusCode, c.want)
		}
	}
}
