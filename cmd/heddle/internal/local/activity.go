package local

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// activity counts open calls of clients and remembers when the last one ended.
// The session of an executor is not a reason to stay.
type activity struct {
	calls atomic.Int64
	ended atomic.Int64 // unix nanoseconds
}

func newActivity() *activity { return &activity{} }

func (a *activity) open() bool { return a.calls.Load() > 0 }

func (a *activity) last() time.Time { return time.Unix(0, a.ended.Load()) }

type clientCall struct{}

// TagRPC marks the calls of clients.
func (a *activity) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if strings.HasPrefix(info.FullMethodName, "/"+executorv1.ExecutorService_ServiceDesc.ServiceName+"/") {
		return ctx
	}
	return context.WithValue(ctx, clientCall{}, true)
}

// HandleRPC counts.
func (a *activity) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if ctx.Value(clientCall{}) == nil {
		return
	}
	switch s.(type) {
	case *stats.Begin:
		a.calls.Add(1)
	case *stats.End:
		a.ended.Store(time.Now().UnixNano())
		a.calls.Add(-1)
	}
}

// TagConn does nothing.
func (a *activity) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (a *activity) HandleConn(context.Context, stats.ConnStats) {}
