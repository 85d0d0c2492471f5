//go:build robust

package robust

import (
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// run is one robustness run: its home, its clients and what they saw.
type run struct {
	home   *home
	seats  []*seat
	seen   *Seen
	tally  *tally
	stderr *os.File
	model  *model
	conn   *grpc.ClientConn

	mu       sync.Mutex
	threads  []*threadState
	prompts  int
	acks     []ack
	notes    map[string][]Note // by chain and thread
	noted    int
	problems []Violation
	added    chan string
	logs     map[string][]*heddlev1.Event // at the end
	counted  int                          // lines of the file of faults
}

// ack is an input that a server accepted.
type ack struct{ thread, turn, text string }

type threadState struct {
	id string

	mu   sync.Mutex
	turn string
}

func (t *threadState) lastTurn() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turn
}

func (r *run) threadList() []*threadState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.threads
}

func (r *run) addThread(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.threads {
		if t.id == id {
			return
		}
	}
	r.threads = append(r.threads, &threadState{id: id})
	r.added <- id
}

// prompt makes a text that no other input has.
func (r *run) prompt() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prompts++
	return fmt.Sprintf("input number %d.", r.prompts)
}

func (r *run) acked(t *threadState, turn, text string) {
	t.mu.Lock()
	t.turn = turn
	t.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks = append(r.acks, ack{t.id, turn, text})
}

func (r *run) note(n Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := n.Chain + " " + n.Thread
	r.notes[key] = append(r.notes[key], n)
	r.noted++
}

func (r *run) violate(v ...Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, v...)
}

// silent notes a request without an answer over a connection that stands.
func (r *run) silent(s *seat, err error) {
	if c := s.current(); c != nil && !c.closed() {
		r.violate(Violation{What: fmt.Sprintf("%s: %v over an open connection", c.name, err)})
		c.link.close()
	}
}
