package protocol

import (
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// QueueAddParams add a message to a thread's queue.
type QueueAddParams struct {
	ThreadID            string            `wire:"threadId"`
	Input               []UserInput       `wire:"input"`
	ClientUserMessageID string            `wire:"clientUserMessageId"`
	ClientMetadata      map[string]string `wire:"responsesapiClientMetadata,opt"`
}

// QueueUpdateParams replace the input of a queued message.
type QueueUpdateParams struct {
	ThreadID           string            `wire:"threadId"`
	QueuedSubmissionID string            `wire:"queuedSubmissionId"`
	Input              []UserInput       `wire:"input"`
	ClientMetadata     map[string]string `wire:"responsesapiClientMetadata,opt"`
}

// QueueReorderParams order a thread's queue.
type QueueReorderParams struct {
	ThreadID            string   `wire:"threadId"`
	QueuedSubmissionIDs []string `wire:"queuedSubmissionIds"`
}

// QueueDeleteParams take a queued message back.
type QueueDeleteParams struct {
	ThreadID           string `wire:"threadId"`
	QueuedSubmissionID string `wire:"queuedSubmissionId"`
}

// QueueStartParams take a queued message up now.
type QueueStartParams struct {
	ThreadID           string  `wire:"threadId"`
	QueuedSubmissionID *string `wire:"queuedSubmissionId,opt"`
}

// QueuedSubmission is the wire form of a queued message.
type QueuedSubmission struct {
	ID                  string            `json:"id"`
	Input               []any             `json:"input"`
	ClientUserMessageID string            `json:"clientUserMessageId"`
	ClientMetadata      map[string]string `json:"responsesapiClientMetadata"`
}

// FromQueued makes the wire form of a queued message.
func FromQueued(m *heddlev1.QueuedMessage) QueuedSubmission {
	return QueuedSubmission{
		ID: m.GetId(), Input: fromInput(m.GetInput().GetParts()), ClientUserMessageID: m.GetInput().GetClientId(), ClientMetadata: m.GetClientMetadata(),
	}
}

// SampleParams ask a thread's model beside the conversation.
type SampleParams struct {
	ThreadID          string            `wire:"threadId"`
	ExpectedTurnID    string            `wire:"expectedTurnId"`
	Prompt            string            `wire:"prompt"`
	AllowInProgress   bool              `wire:"allowInProgressTurn,default"`
	DisableMCP        bool              `wire:"disableMcp,default"`
	Effort            *Effort           `wire:"effort,opt"`
	InterruptOnCancel *bool             `wire:"interruptOnCancel,opt"`
	ClientMetadata    map[string]string `wire:"responsesapiClientMetadata,opt"`
	ThreadSource      *string           `wire:"threadSource,opt"`
	TurnTrigger       *string           `wire:"turnTrigger,opt"`
}

// PlanParams show an approved plan to a thread's model.
type PlanParams struct {
	ThreadID       string  `wire:"threadId"`
	Markdown       string  `wire:"markdown"`
	AttachmentPath *string `wire:"attachmentPath,opt"`
}
