package errdefs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

func TestReasonSurvivesTheWire(t *testing.T) {
	err := fmt.Errorf("steer: %w", errdefs.New(errdefs.TurnMismatch, "expected %s", "a").With("found", "b"))
	got := errdefs.From(errdefs.ToStatus(err))
	if got == nil || got.Reason != errdefs.TurnMismatch || got.Meta["found"] != "b" || got.Message != "expected a" {
		t.Fatalf("got %+v, want reason, message and meta kept", got)
	}
	if code := status.Code(errdefs.ToStatus(err)); code != codes.FailedPrecondition {
		t.Fatalf("code %v, want FailedPrecondition", code)
	}
}

func TestToStatusOfOtherErrors(t *testing.T) {
	cases := map[string]struct {
		err  error
		want codes.Code
	}{
		"nil":      {nil, codes.OK},
		"canceled": {fmt.Errorf("x: %w", context.Canceled), codes.Canceled},
		"deadline": {context.DeadlineExceeded, codes.DeadlineExceeded},
		"plain":    {errors.New("disk on fire"), codes.Internal},
		"status":   {status.Error(codes.Aborted, "no"), codes.Aborted},
	}
	for name, c := range cases {
		if got := status.Code(errdefs.ToStatus(c.err)); got != c.want {
			t.Errorf("%s: code %v, want %v", name, got, c.want)
		}
	}
}

func TestFromUntyped(t *testing.T) {
	if e := errdefs.From(errors.New("x")); e != nil {
		t.Fatalf("got %v, want nil", e)
	}
	if errdefs.Is(nil, errdefs.Internal) {
		t.Fatal("nil error has no reason")
	}
}
