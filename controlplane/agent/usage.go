package agent

import (
	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// addUsage counts one model call.
func (lt *live) addUsage(u *heddlev1.TokenUsage, window int64) *heddlev1.ThreadTokenUsage {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.spend(u, proto.CloneOf(u), window)
}

// addSideUsage is addUsage for a call beside the conversation, whose size it
// says nothing about.
func (lt *live) addSideUsage(u *heddlev1.TokenUsage) *heddlev1.ThreadTokenUsage {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	last := lt.usage.GetLast()
	if last == nil {
		last = &heddlev1.TokenUsage{}
	}
	return lt.spend(u, last, lt.usage.GetModelContextWindow())
}

// spend adds to the total; the caller holds mu.
func (lt *live) spend(u, last *heddlev1.TokenUsage, window int64) *heddlev1.ThreadTokenUsage {
	total := &heddlev1.TokenUsage{}
	if lt.usage.GetTotal() != nil {
		total = proto.CloneOf(lt.usage.GetTotal())
	}
	total.TotalTokens += u.GetTotalTokens()
	total.InputTokens += u.GetInputTokens()
	total.CachedInputTokens += u.GetCachedInputTokens()
	total.CacheWriteInputTokens += u.GetCacheWriteInputTokens()
	total.OutputTokens += u.GetOutputTokens()
	total.ReasoningOutputTokens += u.GetReasoningOutputTokens()
	lt.usage = &heddlev1.ThreadTokenUsage{Total: total, Last: last, ModelContextWindow: window}
	return lt.usage
}
