package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/controlplane/server"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/settings"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// releaseBound is how long an executor may take to end a thread's scope.
const releaseBound = 5 * time.Second

// executors gives the agent the dispatcher.
type executors struct{ d *dispatch.Dispatcher }

func scopeOf(threadID string) string { return "thread/" + threadID }

func (e *executors) Start(ctx context.Context, s agent.Spec) (agent.Handle, error) {
	h, err := e.d.Start(ctx, dispatch.Spec{Scope: scopeOf(s.ThreadID), Principal: s.Principal, Action: s.Action, Output: s.Output, Network: networkOf(s), Epoch: s.Epoch})
	if err != nil {
		return nil, suspendedIfStopped(err)
	}
	return handle{h}, nil
}

func (e *executors) Reattach(ctx context.Context, s agent.Spec, from int64) (agent.Handle, error) {
	h, err := e.d.Reattach(ctx, s.Action.GetActionId(), scopeOf(s.ThreadID), s.Output, from)
	if e := errdefs.From(err); e != nil && e.Meta[dispatch.UnderEpoch] != "" {
		epoch, perr := strconv.ParseUint(e.Meta[dispatch.UnderEpoch], 10, 64)
		if perr != nil {
			return nil, errors.Join(err, perr)
		}
		return nil, &agent.UndeliveredError{Epoch: epoch, Err: err}
	}
	if err != nil {
		return nil, suspendedIfStopped(err)
	}
	if n := networkOf(s); n != nil {
		h.SetNetwork(n)
	}
	return handle{h}, nil
}

func (e *executors) ReleaseThread(ctx context.Context, threadID string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseBound)
	defer cancel()
	return e.d.ReleaseScope(ctx, scopeOf(threadID))
}

// handle is a dispatch.Handle as the agent sees it.
type handle struct{ *dispatch.Handle }

func (h handle) Settle() { h.Ack() }

func (h handle) Result(ctx context.Context) (*executorv1.ActionResult, error) {
	res, err := h.Handle.Result(ctx)
	return res, suspendedIfStopped(err)
}

// network is an agent.Network as the dispatcher sees it.
type network struct{ agent.Network }

func networkOf(s agent.Spec) dispatch.Network {
	if s.Network == nil {
		return nil
	}
	return network{s.Network}
}

func (n network) Ask(ctx context.Context, r *executorv1.NetworkRequest) *executorv1.NetworkVerdict {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(suspendedIfStopped(context.Cause(ctx))) })()
	return n.Network.Ask(inner, r)
}

// suspendedIfStopped tells the agent that the dispatcher stopped, which is no
// outcome of the action.
func suspendedIfStopped(err error) error {
	if errors.Is(err, dispatch.ErrStopped) {
		return agent.ErrSuspended
	}
	return err
}

// views gives connection-scoped work what it needs of a session.
type views struct {
	sessions *session.Registry
	settings *settings.Resolver
}

func (v *views) Lookup(ctx context.Context) (server.SessionView, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	ids := md.Get(server.SessionKey)
	if len(ids) == 0 {
		return nil, errdefs.New(errdefs.SessionUnknown, "the call names no session")
	}
	s, err := v.sessions.Get(ids[0])
	if err != nil {
		return nil, err
	}
	c, err := v.settings.Load(s.ID, s.Cwd, nil)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.ID, err)
	}
	return &view{session: s, config: c}, nil
}

type view struct {
	session *session.Session
	config  *config.Config
}

func (v *view) ID() string        { return v.session.ID }
func (v *view) Cwd() string       { return v.session.Cwd }
func (v *view) Principal() string { return v.session.Principal }

func (v *view) Env() []string { return config.FilterEnv(v.config.EnvPolicy(), v.session.Env) }

func (v *view) DefaultPolicy() *heddlev1.SandboxPolicy { return v.config.SandboxPolicy() }
