package session

import (
	"maps"

	"context"
	"google.golang.org/protobuf/types/known/structpb"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// MaxSessions bounds the sessions of one control plane.
const MaxSessions = 4096

// peerPoll is how often a lost session's process is looked at within the grace.
const peerPoll = 10 * time.Millisecond

// Config configures a Registry.
type Config struct {
	// Grace is how long a lost session may come back; 0 means 5 s.
	Grace time.Duration
	// OnGone is called once when a session has ended for good: detached, dead,
	// or lost for longer than the grace.
	OnGone func(s *Session)
	// OnUnheld is called when the last session that held a thread let it go.
	OnUnheld func(threadID string)
	// OnAttach is called when a session attached or came back; may be nil.
	OnAttach func(s *Session)
}

// Registry is the set of known sessions.
type Registry struct {
	cfg Config

	mu       sync.Mutex
	sessions map[string]*entry
	// holders maps threads to the sessions that hold them.
	holders map[string]map[string]struct{}
	drain   chan struct{}
}

type entry struct {
	session *Session
	// attachment is the current stream; nil while the session is lost.
	attachment *Attachment
	threads    map[string]struct{}
	// back is closed when a lost session came back; nil while it is attached.
	back chan struct{}
	// noted is the process that the store knows of.
	noted Peer
}

// Attachment is one Attach stream of a session.
type Attachment struct {
	Session    *Session
	superseded chan struct{}
	draining   <-chan struct{}
	notices    chan *heddlev1.Notice
}

// Notices are what the session should know of its threads beside their logs.
func (a *Attachment) Notices() <-chan *heddlev1.Notice { return a.notices }

// notices is how many may wait for one session; further ones are dropped.
const notices = 16

// Notify tells the sessions that hold a thread something that its log cannot say.
func (r *Registry) Notify(threadID, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.holders[threadID] {
		e := r.sessions[id]
		if e == nil || e.attachment == nil {
			continue
		}
		select {
		case e.attachment.notices <- &heddlev1.Notice{ThreadId: threadID, Message: message}:
		default:
		}
	}
}

// Superseded is closed when a later stream attached under the same id, or the
// session was detached.
func (a *Attachment) Superseded() <-chan struct{} { return a.superseded }

// Draining is closed when the control plane is about to stop.
func (a *Attachment) Draining() <-chan struct{} { return a.draining }

// NewRegistry returns an empty Registry.
func NewRegistry(cfg Config) *Registry {
	if cfg.Grace == 0 {
		cfg.Grace = 5 * time.Second
	}
	return &Registry{cfg: cfg, sessions: map[string]*entry{}, holders: map[string]map[string]struct{}{}, drain: make(chan struct{})}
}

// Attach registers a session or rejoins a lost one. A stream that is still open
// under the same id is superseded. The caller must call Ended when the returned
// attachment's stream ends.
func (r *Registry) Attach(req *heddlev1.AttachRequest) (*Attachment, error) {
	if req.GetSessionId() == "" {
		return nil, errdefs.New(errdefs.InvalidArgument, "attach: session_id is missing")
	}
	s := newSession(req)
	a := &Attachment{Session: s, superseded: make(chan struct{}), draining: r.drain, notices: make(chan *heddlev1.Notice, notices)}
	r.mu.Lock()
	e := r.sessions[s.ID]
	if e == nil {
		if len(r.sessions) >= MaxSessions {
			r.mu.Unlock()
			return nil, errdefs.New(errdefs.Overloaded, "attach: %d sessions are the limit", MaxSessions)
		}
		e = &entry{threads: map[string]struct{}{}}
		r.sessions[s.ID] = e
	}
	if e.attachment != nil {
		close(e.attachment.superseded)
	}
	if e.back != nil {
		close(e.back)
		e.back = nil
	}
	e.session, e.attachment = s, a
	r.mu.Unlock()
	if r.cfg.OnAttach != nil {
		r.cfg.OnAttach(s)
	}
	return a, nil
}

// Ended says that an attachment's stream ended. Unless it was superseded, the
// session is given its grace, less when its process is known to be dead.
func (r *Registry) Ended(a *Attachment) {
	r.mu.Lock()
	e := r.sessions[a.Session.ID]
	if e == nil || e.attachment != a {
		r.mu.Unlock()
		return
	}
	e.attachment = nil
	back := make(chan struct{})
	e.back = back
	r.mu.Unlock()
	go r.await(e, a.Session.Peer, back)
}

// await ends a lost session after its grace.
func (r *Registry) await(e *entry, peer Peer, back <-chan struct{}) {
	grace := time.NewTimer(r.cfg.Grace)
	defer grace.Stop()
	poll := time.NewTicker(peerPoll)
	defer poll.Stop()
	for !peer.Dead() {
		select {
		case <-back:
			return
		case <-grace.C:
			r.remove(e, back)
			return
		case <-poll.C:
			if peer.PID == 0 {
				poll.Stop()
			}
		}
	}
	r.remove(e, back)
}

// Detach ends a session on purpose. An unknown id is not an error.
func (r *Registry) Detach(id string) {
	r.mu.Lock()
	e := r.sessions[id]
	r.mu.Unlock()
	if e != nil {
		r.remove(e, nil)
	}
}

// remove takes a session out, once. back names the loss that timed out; nil
// means whatever the state.
func (r *Registry) remove(e *entry, back <-chan struct{}) {
	r.mu.Lock()
	if r.sessions[e.session.ID] != e || (back != nil && (e.back == nil || (<-chan struct{})(e.back) != back)) {
		r.mu.Unlock()
		return
	}
	delete(r.sessions, e.session.ID)
	if e.attachment != nil {
		close(e.attachment.superseded)
	}
	if e.back != nil {
		close(e.back)
	}
	var unheld []string
	for t := range e.threads {
		if r.unhold(e.session.ID, t) {
			unheld = append(unheld, t)
		}
	}
	s := e.session
	r.mu.Unlock()
	if r.cfg.OnGone != nil {
		r.cfg.OnGone(s)
	}
	for _, t := range unheld {
		r.unheld(t)
	}
}

// Get returns an attached or recently lost session.
func (r *Registry) Get(id string) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.sessions[id]; e != nil {
		return e.session, nil
	}
	return nil, errdefs.New(errdefs.SessionUnknown, "session %q is not attached", id).With("session", id)
}

// Update lays config keys over those that a session brought.
func (r *Registry) Update(id string, keys map[string]*structpb.Value) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[id]
	if e == nil {
		return errdefs.New(errdefs.SessionUnknown, "session %q is not attached", id).With("session", id)
	}
	changed := *e.session
	changed.Overrides = &structpb.Struct{Fields: maps.Clone(e.session.Overrides.GetFields())}
	if changed.Overrides.Fields == nil {
		changed.Overrides.Fields = map[string]*structpb.Value{}
	}
	maps.Copy(changed.Overrides.Fields, keys)
	e.session = &changed
	return nil
}

// Lost reports whether a session is away: not attached, or its process is dead.
func (r *Registry) Lost(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[id]
	return e == nil || e.attachment == nil || e.session.Peer.Dead()
}

// Hold notes that a session works on a thread.
func (r *Registry) Hold(id, threadID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[id]
	if e == nil {
		return
	}
	e.threads[threadID] = struct{}{}
	if r.holders[threadID] == nil {
		r.holders[threadID] = map[string]struct{}{}
	}
	r.holders[threadID][id] = struct{}{}
}

// Release notes that a session no longer works on a thread.
func (r *Registry) Release(id, threadID string) {
	r.mu.Lock()
	e := r.sessions[id]
	last := false
	if e != nil {
		delete(e.threads, threadID)
		last = r.unhold(id, threadID)
	}
	r.mu.Unlock()
	if last {
		r.unheld(threadID)
	}
}

// Held reports whether any session holds the thread.
func (r *Registry) Held(threadID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.holders[threadID]) > 0
}

// unhold removes one holder and reports whether it was the last. r.mu is held.
func (r *Registry) unhold(id, threadID string) bool {
	h := r.holders[threadID]
	if _, ok := h[id]; !ok {
		return false
	}
	delete(h, id)
	if len(h) > 0 {
		return false
	}
	delete(r.holders, threadID)
	return true
}

func (r *Registry) unheld(threadID string) {
	if r.cfg.OnUnheld != nil {
		r.cfg.OnUnheld(threadID)
	}
}

// Len is the number of sessions, lost ones within their grace included.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}

// Drain tells every attachment that the control plane is about to stop.
func (r *Registry) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.drain:
	default:
		close(r.drain)
	}
}

// AwaitBack waits until the session is attached, its peer (as known from before
// a restart) is dead, or the grace is over. It reports whether it came back.
func (r *Registry) AwaitBack(ctx context.Context, id string, peer Peer) bool {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Grace)
	defer cancel()
	poll := time.NewTicker(peerPoll)
	defer poll.Stop()
	for {
		if _, err := r.Get(id); err == nil {
			return true
		}
		if peer.Dead() {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
}

// PeerKey is the key under which a session's process is kept in the store.
func PeerKey(sessionID string) string { return "session/" + sessionID }

// NotePeer keeps the session's process through set, once per session.
func (r *Registry) NotePeer(s *Session, set func(key string, value []byte) error) error {
	r.mu.Lock()
	e := r.sessions[s.ID]
	if e == nil || e.noted == s.Peer {
		r.mu.Unlock()
		return nil
	}
	e.noted = s.Peer
	r.mu.Unlock()
	return set(PeerKey(s.ID), []byte(s.Peer.String()))
}
