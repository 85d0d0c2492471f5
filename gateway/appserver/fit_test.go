package appserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// worst are texts whose JSON form is longest for their kind.
func worst() map[string]string {
	return map[string]string{
		"control": strings.Repeat("\x01", 180<<10),
		"wide":    strings.Repeat("\U0001F600", 60<<10),
	}
}

// fill gives every field of a message a value, texts the given one, lists two
// of them, one choice of each oneof.
func fill(m protoreflect.Message, text string, choose func(protoreflect.OneofDescriptor) protoreflect.FieldDescriptor, depth int) {
	if s, ok := m.Interface().(*structpb.Struct); ok {
		s.Fields = map[string]*structpb.Value{"content": structpb.NewStringValue(strings.ToValidUTF8(text, "\uFFFD"))}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() && choose(o) != f {
			continue
		}
		if depth > 2 || f.IsMap() {
			continue
		}
		n := 1
		if f.IsList() {
			n = 2
		}
		for range n {
			v, ok := value(m, f, text, choose, depth)
			if !ok {
				continue
			}
			if f.IsList() {
				m.Mutable(f).List().Append(v)
			} else {
				m.Set(f, v)
			}
		}
	}
}

func value(m protoreflect.Message, f protoreflect.FieldDescriptor, text string, choose func(protoreflect.OneofDescriptor) protoreflect.FieldDescriptor, depth int) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text)), true
	case protoreflect.MessageKind:
		if f.IsList() {
			v := m.NewField(f).List().NewElement()
			fill(v.Message(), text, choose, depth+1)
			return v, true
		}
		v := m.NewField(f)
		fill(v.Message(), text, choose, depth+1)
		return v, true
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1), true
	}
	return protoreflect.Value{}, false
}

// first chooses the first member of every oneof but those that are given.
func first(given map[protoreflect.FullName]protoreflect.FieldDescriptor) func(protoreflect.OneofDescriptor) protoreflect.FieldDescriptor {
	return func(o protoreflect.OneofDescriptor) protoreflect.FieldDescriptor {
		if f := given[o.FullName()]; f != nil {
			return f
		}
		return o.Fields().Get(0)
	}
}

func checkLine(t *testing.T, what string, line []byte, marked bool) {
	t.Helper()
	if len(line) >= maxLine {
		t.Errorf("%s: a line of %d bytes", what, len(line))
	}
	if !json.Valid(line) || !utf8.Valid(line) {
		t.Errorf("%s: not JSON: %.100s", what, line)
	}
	if marked && !bytes.Contains(line, []byte("omitted")) {
		t.Errorf("%s: nothing says what was left out: %.300s", what, line)
	}
}

// C5 as a class: whatever an event or an item holds, no message that it makes is
// longer than 1 MiB, and what is cut says so. Every payload and every kind of item
// is walked, also those that are added later.
func TestNoEventMakesALongLine(t *testing.T) {
	payloads := (&heddlev1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("payload")
	contents := (&heddlev1.Item{}).ProtoReflect().Descriptor().Oneofs().ByName("content")
	for name, text := range worst() {
		for i := range payloads.Fields().Len() {
			payload := payloads.Fields().Get(i)
			for j := range contents.Fields().Len() {
				content := contents.Fields().Get(j)
				isItem := payload.Name() == "item_started" || payload.Name() == "item_completed"
				if !isItem && j > 0 {
					break
				}
				ev := &heddlev1.Event{}
				fill(ev.ProtoReflect(), text, first(map[protoreflect.FullName]protoreflect.FieldDescriptor{payloads.FullName(): payload, contents.FullName(): content}), 0)
				ev.Seq, ev.TurnId, ev.ThreadId = 7, "turn", "thread"
				what := fmt.Sprintf("%s %s %s", payload.Name(), content.Name(), name)
				tr := newTranslator(&heddlev1.Thread{Id: "thread"}, nil)
				tr.opts.Extended, tr.jumps = true, true
				tr.read = func(_ context.Context, _ string, _, _ int64) ([]byte, error) { return []byte(text), nil }
				emit := func(n note) error {
					var line []byte
					var err error
					if n.ask != nil {
						method, params := approvalRequest(n.ask, true)
						if line, err = jsonrpc.EncodeRequest(jsonrpc.IntID(1), method, params); err == nil {
							line = fit(line)
						}
					} else {
						line, err = n.encode(1, true, 6)
					}
					if err != nil {
						return err
					}
					checkLine(t, what+" "+n.method, line, false)
					return nil
				}
				if err := tr.event(t.Context(), ev, emit); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	}
}

// Answers with rows of threads, turns and items of any content stay short, too.
func TestNoAnswerIsALongLine(t *testing.T) {
	contents := (&heddlev1.Item{}).ProtoReflect().Descriptor().Oneofs().ByName("content")
	for name, text := range worst() {
		row := &heddlev1.Thread{}
		fill(row.ProtoReflect(), text, first(nil), 0)
		row.Id = "thread"
		wire := protocol.FromThread(row, protocol.NotLoaded, "/streams/thread")
		answers := map[string]any{
			"thread/list": list{"data": []any{wire, wire, wire}, "nextCursor": nil}, "thread/start": protocol.FromOpened(row, wire),
			"command/exec": list{"exitCode": 0, "stdout": validText([]byte(text)), "stderr": validText([]byte(text))},
		}
		for j := range contents.Fields().Len() {
			content := contents.Fields().Get(j)
			item, turn := &heddlev1.Item{}, &heddlev1.Turn{}
			choose := first(map[protoreflect.FullName]protoreflect.FieldDescriptor{contents.FullName(): content})
			fill(item.ProtoReflect(), text, choose, 0)
			fill(turn.ProtoReflect(), text, choose, 1)
			answers["thread/turns/list "+string(content.Name())] = list{"data": []any{protocol.FromTurnWithItems(&heddlev1.TurnWithItems{
				Turn: turn, Items: []*heddlev1.Item{item, proto.CloneOf(item)}}, protocol.ViewFull, protocol.ItemOptions{Extended: true})}}
		}
		a := &heddlev1.Artifact{}
		fill(a.ProtoReflect(), text, first(nil), 0)
		answers["thread/artifacts/list"] = list{"data": []any{wireArtifact(a)}}
		for method, result := range answers {
			line := fit(jsonrpc.EncodeResult(jsonrpc.IntID(3), result))
			checkLine(t, method+" "+name, line, method == "command/exec" && name == "control")
			var m struct {
				ID json.Number `json:"id"`
			}
			if err := json.Unmarshal(line, &m); err != nil || m.ID != "3" {
				t.Errorf("%s: id %q, %v", method, m.ID, err)
			}
		}
	}
}

func TestFitKeepsWhatItCan(t *testing.T) {
	small := []byte(`{"a":1}`)
	if got := fit(small); !bytes.Equal(got, small) {
		t.Errorf("a short message became %s", got)
	}
	long := strings.Repeat("x", 2<<20)
	line, err := jsonrpc.Marshal(map[string]any{"id": 12345678901234567, "short": "stays", "long": long, "image": "data:image/png;base64," + long, "n": 1.5})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(fit(line)))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m["id"] != json.Number("12345678901234567") || m["short"] != "stays" || !strings.Contains(fmt.Sprint(m["long"]), "omitted ...]\nxxx") || m["image"] != fmt.Sprintf("data:text/plain,%d%%20bytes%%20omitted", len(long)+22) {
		t.Errorf("%.300v", m)
	}
	many := make([]any, 300_000)
	for i := range many {
		many[i] = fmt.Sprint("item ", i)
	}
	line, _ = jsonrpc.Marshal(map[string]any{"id": 1, "list": many})
	out := fit(line)
	checkLine(t, "a long list", out, true)
	if !bytes.Contains(out, []byte(`"item 1000"`)) {
		t.Error("the beginning of the list is gone")
	}
}
