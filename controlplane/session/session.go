package session

import (
	"maps"

	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Local is the principal of every session while authentication is off.
const Local = "local"

// Session is what one gateway registered with. It does not change; an update of
// its config makes another one.
type Session struct {
	ID               string
	Principal        string
	ClientVersion    string
	OnDisconnect     heddlev1.OnDisconnect
	Cwd              string
	Env              map[string]string
	Overrides        *structpb.Struct
	Profile          string
	IgnoreUserConfig bool
	// Peer is the gateway's process on this machine; zero when it is elsewhere.
	Peer Peer
}

func newSession(r *heddlev1.AttachRequest) *Session {
	s := &Session{
		ID: r.GetSessionId(), Principal: Local, ClientVersion: r.GetClientVersion(), OnDisconnect: r.GetOnDisconnect(),
		Cwd: r.GetCwd(), Env: maps.Clone(r.GetEnv()), Overrides: r.GetConfig(), Profile: r.GetProfile(),
		IgnoreUserConfig: r.GetIgnoreUserConfig(), Peer: PeerOf(r.GetPid()),
	}
	if s.OnDisconnect == heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED {
		s.OnDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT
	}
	return s
}
