package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/config"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type (
	contextType = context.Context
	yieldType   = func(model.Event) error
)

func (r *rig) interrupt(ctx context.Context, thread, turn string) {
	r.t.Helper()
	if _, err := r.turns.InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: thread, TurnId: turn}); err != nil {
		r.t.Fatal(err)
	}
}

// withConfig gives the provider "mock" more settings.
func withConfig(t *testing.T, provider string) func(*Config) {
	t.Helper()
	return func(c *Config) {
		dir := t.TempDir()
		text := "[model_providers.mock]\nname = \"mock\"\nbase_url = \"http://127.0.0.1:1/v1\"\nwire_api = \"responses\"\n" + provider + "\n"
		if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Home = config.Home{Dir: dir}
	}
}

func mockProvider() *heddlev1.ThreadSettings {
	s := workspaceWrite("never")
	s.ModelProvider = "mock"
	return s
}

// limits is a thread's config with a limit for compaction.
func limits(t *testing.T, tokens float64) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(map[string]any{"model_auto_compact_token_limit": tokens})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
