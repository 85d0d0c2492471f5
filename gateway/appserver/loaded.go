package appserver

import (
	"context"
	"sync"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// goneTime bounds how long the subscribers of a thread that is archived, deleted
// or lost may take to be told, partingTime how long who took it away waits for
// the others.
const (
	goneTime    = 30 * time.Second
	partingTime = 2 * time.Second
)

// loaded is one thread that this server holds.
type loaded struct {
	srv    *Server
	id     string
	feed   *feed
	ctx    context.Context
	cancel context.CancelFunc
	// monitorGate holds back what the monitor sends.
	monitorGate gate

	mu   sync.Mutex
	subs map[*client]*subscription
	idle bool
	// departing is set while a request of ours archives or deletes the thread.
	departing bool
	timer     *time.Timer
}

func newLoaded(s *Server, t *heddlev1.Thread, pending []*heddlev1.Approval) *loaded {
	ctx, cancel := context.WithCancel(context.Background())
	l := &loaded{
		srv: s, id: t.GetId(), ctx: ctx, cancel: cancel,
		feed: newFeed(s.session, t.GetId(), t.GetLastSeq()), subs: map[*client]*subscription{},
		idle: t.GetState() != heddlev1.ThreadState_THREAD_STATE_ACTIVE,
	}
	go l.monitor(newTranslator(t, pending), t.GetLastSeq())
	return l
}

// close ends all that reads the thread, without a word to anybody.
func (l *loaded) close() {
	l.cancel()
	l.feed.close()
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	subs := l.subs
	l.subs = map[*client]*subscription{}
	l.mu.Unlock()
	for c, sub := range subs {
		sub.cancel()
		c.forget(l.id, sub)
	}
}

// monitor sends what concerns every connection to those that are not
// subscribed, and lets an idle thread without subscribers go.
func (l *loaded) monitor(tr *translator, after uint64) {
	tr.global = true
	cur := &cursor{feed: l.feed, after: after}
	err := cur.each(l.ctx, func(e *heddlev1.Event) error {
		if e.GetThreadArchived() != nil {
			l.archivedElsewhere()
		}
		err := tr.event(l.ctx, e, func(n note) error {
			if err := l.monitorGate.wait(l.ctx); err != nil {
				return err
			}
			l.srv.broadcast(n, l.subscribed)
			return nil
		})
		l.settled(tr.state != heddlev1.ThreadState_THREAD_STATE_ACTIVE)
		return err
	})
	if err != nil && l.ctx.Err() == nil {
		l.srv.log.Info("thread is no longer watched", "thread", l.id, "error", err)
		l.gone()
	}
}

// gone follows a thread that is no more: deleted elsewhere, or ephemeral and
// lost with its control plane. Subscribers are told what was open first.
func (l *loaded) gone() {
	l.mu.Lock()
	ours := l.departing
	l.mu.Unlock()
	if ours {
		return
	}
	l.parted(goneTime)
	if l.srv.unload(l.id) {
		l.srv.broadcast(statusNote(l.id, notLoaded), nil)
		l.srv.broadcast(note{method: "thread/closed", all: true, params: threadID{l.id}}, nil)
	}
}

// parted waits until every subscriber has been told of the thread's end, for as
// long as they may take in all, and reports whether all have.
func (l *loaded) parted(patience time.Duration) bool {
	l.mu.Lock()
	subs := make([]*subscription, 0, len(l.subs))
	for _, sub := range l.subs {
		subs = append(subs, sub)
	}
	l.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, sub := range subs {
		select {
		case <-sub.parted:
		case <-timer.C:
			return false
		case <-l.ctx.Done():
			return true
		}
	}
	return true
}

func (l *loaded) subscribed(c *client) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subs[c] != nil
}

// subscription returns a connection's subscription, nil without one.
func (l *loaded) subscription(c *client) *subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subs[c]
}

// settled notes whether a turn runs and arms the timer for an idle thread.
func (l *loaded) settled(idle bool) {
	l.mu.Lock()
	changed := l.idle != idle
	l.idle = idle
	l.mu.Unlock()
	if changed {
		l.arm()
	}
}

// arm starts the unload timer if nobody needs the thread.
func (l *loaded) arm() {
	l.mu.Lock()
	needed := len(l.subs) > 0 || !l.idle
	l.mu.Unlock()
	if needed {
		return
	}
	go func() {
		delay := l.srv.unloadDelay(l.ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ctx.Err() != nil || len(l.subs) > 0 {
			return
		}
		if l.timer != nil {
			l.timer.Stop()
		}
		l.timer = time.AfterFunc(delay, l.expire)
	}()
}

func (l *loaded) expire() {
	l.mu.Lock()
	keep := len(l.subs) > 0 || !l.idle || l.departing
	l.mu.Unlock()
	if keep || !l.srv.unload(l.id) {
		return
	}
	l.srv.broadcast(statusNote(l.id, notLoaded), nil)
	l.srv.broadcast(note{method: "thread/closed", all: true, params: threadID{l.id}}, nil)
	l.srv.release(l.id)
}

// Notice warns the subscribers of a thread of something that is not in its log.
func (s *Server) Notice(threadID, message string) {
	l := s.thread(threadID)
	if l == nil {
		return
	}
	s.broadcast(note{method: "warning", params: warningParams(threadID, message)}, func(c *client) bool { return !l.subscribed(c) })
}

// release tells the control plane that the session no longer holds a thread.
func (s *Server) release(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewThreadServiceClient(cc).UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: id})
		return err
	})
	if err != nil {
		s.log.Info("unloading a thread failed", "thread", id, "error", err)
	}
}

// Rehold tells a control plane that took over which threads this server holds.
func (s *Server) Rehold() {
	for _, id := range s.loadedIDs() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		_, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.LoadThreadResponse, error) {
			return c.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: id})
		})
		cancel()
		if err != nil {
			s.log.Info("holding a thread again failed", "thread", id, "error", err)
		}
	}
}

// archivedElsewhere follows an archive request of another gateway.
func (l *loaded) archivedElsewhere() {
	l.mu.Lock()
	ours := l.departing
	l.mu.Unlock()
	if ours {
		return
	}
	go func() {
		l.parted(goneTime)
		if l.srv.unload(l.id) {
			l.srv.broadcast(statusNote(l.id, notLoaded), nil)
			l.srv.broadcast(note{method: "thread/archived", all: true, params: threadID{l.id}}, nil)
		}
	}()
}

// depart marks the thread as one that a request of ours takes away.
func (l *loaded) depart(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.departing = on
}

// hold keeps back what a connection is sent about the thread until the returned
// function is called.
func (l *loaded) hold(c *client) (release func()) {
	release = l.monitorGate.hold()
	if sub := l.subscription(c); sub != nil {
		monitor, own := release, sub.gate.hold()
		return func() { own(); monitor() }
	}
	return release
}

// subscribe adds a connection, from a row and its pending approvals on. The
// subscription is held; the returned function lets it run. A connection that is
// subscribed already keeps its place.
func (l *loaded) subscribe(c *client, t *heddlev1.Thread, pending []*heddlev1.Approval) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	if sub := l.subs[c]; sub != nil {
		return sub.gate.hold()
	}
	sub := newSubscription(l, c, t, pending)
	l.subs[c] = sub
	c.remember(l.id, sub)
	release = sub.gate.hold()
	go sub.run(t.GetLastSeq())
	return release
}

// unsubscribe removes a connection and reports whether it was subscribed.
func (l *loaded) unsubscribe(c *client) bool {
	l.mu.Lock()
	sub := l.subs[c]
	delete(l.subs, c)
	l.mu.Unlock()
	if sub == nil {
		return false
	}
	sub.cancel()
	c.forget(l.id, sub)
	l.arm()
	return true
}

// gate holds a stream of messages back while any hold is open.
type gate struct {
	mu    sync.Mutex
	holds int
	open  chan struct{}
}

// hold closes the gate until the returned function is called; calling it again
// does nothing.
func (g *gate) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds == 0 {
		g.open = make(chan struct{})
	}
	g.holds++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.holds--; g.holds == 0 {
			close(g.open)
		}
	})
}

// wait returns when the gate is open.
func (g *gate) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		held, open := g.holds > 0, g.open
		g.mu.Unlock()
		if !held {
			return ctx.Err()
		}
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
