package protocol

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

// TokenCounts is the wire form of a usage.
type TokenCounts struct {
	TotalTokens           int64 `json:"totalTokens"`
	InputTokens           int64 `json:"inputTokens"`
	CachedInputTokens     int64 `json:"cachedInputTokens"`
	CacheWriteInputTokens int64 `json:"cacheWriteInputTokens"`
	OutputTokens          int64 `json:"outputTokens"`
	ReasoningOutputTokens int64 `json:"reasoningOutputTokens"`
}

// TokenUsage is a thread's usage.
type TokenUsage struct {
	Total              TokenCounts `json:"total"`
	Last               TokenCounts `json:"last"`
	ModelContextWindow *int64      `json:"modelContextWindow"`
}

// FromUsage makes the wire form of a thread's usage.
func FromUsage(u *heddlev1.ThreadTokenUsage) TokenUsage {
	return TokenUsage{counts(u.GetTotal()), counts(u.GetLast()), optInt(u.GetModelContextWindow())}
}

func counts(u *heddlev1.TokenUsage) TokenCounts {
	return TokenCounts{u.GetTotalTokens(), u.GetInputTokens(), u.GetCachedInputTokens(), u.GetCacheWriteInputTokens(), u.GetOutputTokens(), u.GetReasoningOutputTokens()}
}

// RateLimits are the limits of an account; all null without one.
type RateLimits struct {
	LimitID              *string `json:"limitId"`
	LimitName            *string `json:"limitName"`
	Primary              *string `json:"primary"`
	Secondary            *string `json:"secondary"`
	Credits              *string `json:"credits"`
	PlanType             *string `json:"planType"`
	IndividualLimit      *string `json:"individualLimit"`
	NormalModelSlug      *string `json:"normalModelSlug"`
	RateLimitReachedType *string `json:"rateLimitReachedType"`
	SpendControlReached  *bool   `json:"spendControlReached"`
}
