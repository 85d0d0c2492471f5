package server

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// maxAnswer is the size from which a message is made smaller: callers take
	// at most 64 MiB, and what is in the log stays as it is.
	maxAnswer = 32 << 20
	// longText is the length to which its texts are cut then. A text may be in a
	// message more than once: in an item, and in the turn that it ends.
	longText = 2 << 20
)

// FitUnary bounds the answers of calls. A single item may be larger than what a
// caller takes, and everything that is listed with it would be out of reach: its
// longest texts are cut in the middle, with a mark that names what was left out.
func FitUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return fitted(resp), err
}

// FitStream bounds the messages of streams as FitUnary does.
func FitStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, fittedStream{ss})
}

type fittedStream struct{ grpc.ServerStream }

func (s fittedStream) SendMsg(m any) error { return s.ServerStream.SendMsg(fitted(m)) }

// fitted returns the message, or a copy with shorter texts when it is too large:
// what is sent may be shared with other readers.
func fitted(m any) any {
	msg, ok := m.(proto.Message)
	if !ok || proto.Size(msg) <= maxAnswer {
		return m
	}
	msg = proto.Clone(msg)
	shorten(msg.ProtoReflect())
	return msg
}

func shorten(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
				if fd.MapValue().Message() != nil {
					shorten(e.Message())
				} else if fd.MapValue().Kind() == protoreflect.StringKind {
					v.Map().Set(k, protoreflect.ValueOfString(shortened(e.String())))
				}
				return true
			})
		case fd.IsList():
			for i := range v.List().Len() {
				if e := v.List().Get(i); fd.Message() != nil {
					shorten(e.Message())
				} else if fd.Kind() == protoreflect.StringKind {
					v.List().Set(i, protoreflect.ValueOfString(shortened(e.String())))
				}
			}
		case fd.Message() != nil:
			shorten(v.Message())
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString(shortened(v.String())))
		}
		return true
	})
}

// shortened keeps the head and the tail of a long text.
func shortened(s string) string {
	if len(s) <= longText {
		return s
	}
	head, tail := longText/2, len(s)-longText/2
	for !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + fmt.Sprintf("\n[... bytes %d to %d of %d omitted ...]\n", head, tail, len(s)) + s[tail:]
}
