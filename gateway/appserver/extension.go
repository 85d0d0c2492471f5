package appserver

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// features are what a client finds here that asked for our additions.
func features() []string {
	return []string{"eventSeq", "eventReplay", "artifacts", "approvalRisk", "typedErrors"}
}

// testedClients are the versions of the protocol's own client that the tests
// run against this server.
func testedClients() []string { return []string{"0.171.0"} }

// extensionTable returns what is done for a method that the protocol does not
// have.
func extensionTable(method string) (entry, bool) {
	switch method {
	case "thread/events/subscribe":
		return handle((*Server).eventsSubscribe), true
	case "thread/events/unsubscribe":
		return handle((*Server).threadUnsubscribe), true
	case "thread/artifacts/list":
		return handle((*Server).artifactsList), true
	case "thread/artifacts/read":
		return handle((*Server).artifactsRead), true
	}
	return entry{}, false
}

// wantsNumbers reads initialize.capabilities.heddle.
func wantsNumbers(caps *protocol.Capabilities) (bool, error) {
	if caps == nil || caps.Heddle == nil {
		return false, nil
	}
	var ours struct {
		EventSeq bool `json:"eventSeq"`
	}
	if err := json.Unmarshal(*caps.Heddle, &ours); err != nil {
		return false, invalid("Invalid request: capabilities.heddle: " + err.Error())
	}
	return ours.EventSeq, nil
}

// ClientRange bounds the versions of clients that are served: From included, To
// excluded, empty for no bound.
type ClientRange struct {
	From, To string
}

// ParseClientRange reads "FROM..TO", either of which may be missing; the empty
// text is no bound.
func ParseClientRange(text string) (ClientRange, error) {
	if text == "" {
		return ClientRange{}, nil
	}
	from, to, ok := strings.Cut(text, "..")
	r := ClientRange{From: strings.TrimSpace(from), To: strings.TrimSpace(to)}
	for _, v := range []string{r.From, r.To} {
		if _, valid := versionOf(v); v != "" && !valid {
			return ClientRange{}, fmt.Errorf("client versions %q: %q is not a version such as 0.171.0", text, v)
		}
	}
	if !ok || r == (ClientRange{}) {
		return ClientRange{}, fmt.Errorf("client versions %q: want FROM..TO, such as 0.150.0..0.180.0", text)
	}
	return r, nil
}

// checkClient refuses a client whose version is outside the configured range. A
// version that is no number is served: only a known one can be known to be wrong.
func (s *Server) checkClient(info protocol.ClientInfo) error {
	v, ok := versionOf(info.Version)
	if !ok {
		return nil
	}
	from, low := versionOf(s.cfg.Clients.From)
	to, high := versionOf(s.cfg.Clients.To)
	if (!low || !v.before(from)) && (!high || v.before(to)) {
		return nil
	}
	want := "from " + s.cfg.Clients.From
	switch {
	case !low:
		want = "before " + s.cfg.Clients.To
	case high:
		want += " to before " + s.cfg.Clients.To
	}
	e := invalid(fmt.Sprintf("client version %s is not supported by this server: it serves versions %s", info.Version, want))
	e.Data = map[string]any{"reason": "VERSION_UNSUPPORTED", "from": s.cfg.Clients.From, "to": s.cfg.Clients.To}
	return e
}

type version [3]int

func (v version) before(o version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

// versionOf reads the numbers that a version begins with; what follows '-' or
// '+' does not count.
func versionOf(text string) (version, bool) {
	text, _, _ = strings.Cut(text, "+")
	text, _, _ = strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if len(parts) > 3 {
		return version{}, false
	}
	var v version
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return version{}, false
		}
		v[i] = n
	}
	return v, true
}

// compacted tells a client with sequence numbers that a range of events is not
// shown: increments of an item whose completed form follows.
func (tr *translator) compacted(e *heddlev1.Event, r *heddlev1.RangeCompacted, emit func(note) error) error {
	if !tr.jumps {
		return nil
	}
	return emit(note{method: "thread/events/compacted", seq: max(e.GetSeq(), r.GetLastSeq()), params: map[string]any{
		"threadId": tr.thread, "turnId": orNil(e.GetTurnId()), "itemId": orNil(r.GetItemId()), "firstSeq": e.GetSeq(), "lastSeq": r.GetLastSeq(),
	}})
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
