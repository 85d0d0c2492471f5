package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// usageAt is what a fork of source that ends with a turn had used by then: the
// turns after it are no part of it, and when its history is compacted depends on
// this. nil when it is not known.
func (s *threadService) usageAt(ctx context.Context, source *heddlev1.Thread, last string) (*heddlev1.ThreadTokenUsage, error) {
	if last == "" {
		return nil, nil
	}
	if newest, err := s.lastTurn(ctx, source, ""); err != nil || newest == last {
		return proto.CloneOf(source.GetTokenUsage()), err
	}
	turn, err := s.store.Turn(ctx, source.GetId(), last)
	if err != nil {
		return nil, err
	}
	// The turn is in the log of the source or of one that it is a fork of.
	for owner := source; ; {
		usage, found, err := s.usageOf(ctx, owner.GetId(), turn)
		if err != nil || found || owner.GetForkedFromId() == "" {
			return usage, err
		}
		if owner, err = s.store.Thread(ctx, owner.GetForkedFromId()); err != nil {
			return nil, err
		}
	}
}

// usageOf reads the last usage that a log tells of a turn. found is false when the
// turn is not in that log.
func (s *threadService) usageOf(ctx context.Context, threadID string, turn *heddlev1.Turn) (usage *heddlev1.ThreadTokenUsage, found bool, err error) {
	for after := turn.GetFirstSeq() - 1; after < turn.GetLastSeq(); {
		events, _, err := s.store.Events(ctx, threadID, after, 0)
		if err != nil || len(events) == 0 {
			return usage, found, err
		}
		for _, e := range events {
			after = max(e.GetSeq(), e.GetRangeCompacted().GetLastSeq())
			if e.GetTurnId() != turn.GetId() || after > turn.GetLastSeq() {
				continue
			}
			found = true
			if u := e.GetTokenUsageUpdated(); u != nil {
				usage = proto.CloneOf(u.GetUsage())
			}
		}
	}
	return usage, found, nil
}
