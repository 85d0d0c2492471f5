package protocol

// EventsSubscribeParams subscribe to a thread's log after a seq, 0 when absent.
type EventsSubscribeParams struct {
	ThreadID string  `wire:"threadId"`
	After    *uint64 `wire:"after,opt"`
}

// ArtifactsListParams page through a thread's artifacts, all kinds of all turns
// unless they say less.
type ArtifactsListParams struct {
	ThreadID string  `wire:"threadId"`
	TurnID   *string `wire:"turnId,opt"`
	// Kind is "diff" or "output".
	Kind   *string `wire:"kind,opt"`
	Cursor *string `wire:"cursor,opt"`
	Limit  *uint32 `wire:"limit,opt"`
}

// ArtifactsReadParams read a range of an artifact.
type ArtifactsReadParams struct {
	ThreadID   string  `wire:"threadId"`
	ArtifactID string  `wire:"artifactId"`
	Offset     *uint64 `wire:"offset,opt"`
	Length     *uint64 `wire:"length,opt"`
}
