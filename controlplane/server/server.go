package server

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/artifact"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/settings"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// SessionKey is the metadata key that carries the session id of a call.
const SessionKey = "heddle-session"

// Outputs reads and removes the stream files of items.
type Outputs interface {
	ReadAt(threadID, itemID string, offset, length int64) (data []byte, total int64, err error)
	DeleteThread(threadID string) error
	// Ephemeral says that a thread's output must not outlive this process.
	Ephemeral(threadID string)
	// Stat describes a stream; sealed is false while it may grow.
	Stat(threadID, itemID string) (seal artifact.Seal, sealed bool, err error)
	// Seal ends a stream that a crash left open.
	Seal(threadID, itemID string) error
	// ReadBlob reads the patch that a turn put under its digest.
	ReadBlob(threadID, owner, sum string, offset, length int64) (data []byte, total int64, err error)
}

// Fleet tells about the executors.
type Fleet interface {
	Status() []*heddlev1.ExecutorStatus
	Waiting() []string
}

// Config holds the parts that the services call.
type Config struct {
	Log      *eventlog.Log
	Agent    *agent.Agent
	Broker   *approval.Broker
	Sessions *session.Registry
	Settings *settings.Resolver
	Models   *model.Catalog
	Outputs  Outputs
	Fleet    Fleet
	// Account holds the key of a login.
	Account *config.Account
	// ConfigFile writes the home's config file.
	ConfigFile *config.Writer
	// Files does one operation on files for a session's client.
	Files func(ctx context.Context, sessionID string, op *heddlev1.FileOperation) ([]byte, *heddlev1.FileOutcome, error)
	// Home is the absolute home folder, Version that of this program.
	Home    string
	Version string
	// Backup writes a copy of the durable store; nil when there is none.
	Backup func(context.Context, io.Writer) (int64, error)
	// Stop ends the control plane; called by Shutdown.
	Stop func()
	// Clock is time.Now when nil.
	Clock  func() time.Time
	Logger *slog.Logger
}

// Server holds the services of client API.
type Server struct {
	cfg   Config
	store store.Reader
	// organizing is held from the check of a change of sections, projects and
	// attachments to its commit.
	organizing sync.Mutex
}

// New returns a Server.
func New(cfg Config) *Server {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, store: cfg.Log.Store()}
}

// Register puts the services on a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	heddlev1.RegisterThreadServiceServer(r, &threadService{Server: s})
	heddlev1.RegisterTurnServiceServer(r, &turnService{Server: s})
	heddlev1.RegisterEventServiceServer(r, &eventService{Server: s})
	heddlev1.RegisterApprovalServiceServer(r, &approvalService{Server: s})
	heddlev1.RegisterSessionServiceServer(r, &sessionService{Server: s})
	heddlev1.RegisterCatalogServiceServer(r, &catalogService{Server: s})
	heddlev1.RegisterMcpServiceServer(r, &mcpService{Server: s})
	heddlev1.RegisterProviderServiceServer(r, &providerService{Server: s})
	heddlev1.RegisterArtifactServiceServer(r, &artifactService{Server: s})
	heddlev1.RegisterQueueServiceServer(r, &queueService{Server: s})
	heddlev1.RegisterOrganizeServiceServer(r, &organizeService{Server: s})
	heddlev1.RegisterSampleServiceServer(r, &sampleService{Server: s})
	heddlev1.RegisterTurnSettingsServiceServer(r, &turnSettingsService{Server: s})
}

// sessionID is the id that a call carries; empty for none.
func sessionID(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(SessionKey); len(v) > 0 {
		return v[0]
	}
	return ""
}

// caller returns the session id of a call that acts for a client. An id that is
// not attached is refused, since its turns would have no owner; no id at all
// (plain REST) is accepted.
func (s *Server) caller(ctx context.Context) (string, error) {
	id := sessionID(ctx)
	if id == "" {
		return "", nil
	}
	if _, err := s.cfg.Sessions.Get(id); err != nil {
		return "", err
	}
	return id, nil
}

// thread reads a thread's row and checks that the caller may see it.
func (s *Server) thread(ctx context.Context, id string) (*heddlev1.Thread, error) {
	if id == "" {
		return nil, errdefs.New(errdefs.InvalidArgument, "thread_id is missing")
	}
	row, err := s.store.Thread(ctx, id)
	if err != nil {
		return nil, err
	}
	if row.GetPrincipal() != session.Local {
		return nil, store.NotFound(id)
	}
	return row, nil
}
