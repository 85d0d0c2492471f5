package protocol

import (
	"encoding/json"

	"google.golang.org/protobuf/types/known/structpb"
)

// ToStruct reads a JSON object, nil for anything else.
func ToStruct(raw *json.RawMessage) *structpb.Struct {
	if raw == nil {
		return nil
	}
	var m map[string]any
	if json.Unmarshal(*raw, &m) != nil {
		return nil
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		return nil
	}
	return s
}

// ToList reads a JSON list, nil for anything else.
func ToList(raw json.RawMessage) *structpb.ListValue {
	var parts []any
	if raw == nil || json.Unmarshal(raw, &parts) != nil {
		return nil
	}
	l, err := structpb.NewList(parts)
	if err != nil {
		return nil
	}
	return l
}

// opt is null for an empty text.
func opt(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
