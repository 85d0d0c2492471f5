package storetest

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func queueChange(c *heddlev1.QueueChanged) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_QueueChanged{QueueChanged: c}}
}

func queued(id string) *heddlev1.Event {
	return queueChange(&heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_Added{Added: &heddlev1.QueuedMessage{Id: id}}})
}

func acceptedQueued(turn, id string) *heddlev1.Event {
	ev := Accepted(turn, "queued")
	ev.GetTurnAccepted().QueuedId = id
	return ev
}

// queueOf reads what waits, as the ids and whether it is held.
func (h *Harness) queueOf(id string) string {
	h.Helper()
	st, err := h.Load(h.ctx(), id)
	h.check(err)
	out := ""
	for _, m := range st.Queue.GetMessages() {
		out += m.GetId() + " "
	}
	return out + fmt.Sprint(st.Queue.GetHeld())
}

// A queue is part of the thread's state, and a thread with a message that is to
// be taken up is open work.
func testQueue(h *Harness) {
	h.Create("a", nil)
	open := func() []string {
		ids, err := h.OpenThreads(h.ctx())
		h.check(err)
		return ids
	}
	h.same("nothing waits", len(open()), 0)
	h.Add("a", queued("m1"), queued("m2"), queued("m3"))
	h.same("queue", h.queueOf("a"), "m1 m2 m3 false")
	h.same("open", open(), []string{"a"})
	h.Add("a", queueChange(&heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_Ordered{Ordered: &heddlev1.QueueOrder{Ids: []string{"m3", "m1", "m2"}}}}))
	h.Add("a", queueChange(&heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_RemovedId{RemovedId: "m1"}}))
	h.same("ordered", h.queueOf("a"), "m3 m2 false")
	h.Add("a", acceptedQueued("t1", "m3"), Started("t1"))
	h.same("taken up", h.queueOf("a"), "m2 false")
	h.Add("a", Completed("t1", heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED))
	h.same("held", h.queueOf("a"), "m2 true")
	h.same("held is not open", len(open()), 0)
	h.AddTurn("a", "t2")
	h.same("let go", h.queueOf("a"), "m2 false")
	h.same("open again", open(), []string{"a"})
	h.Add("a", acceptedQueued("t3", "m2"), Started("t3"))
	h.Add("a", Completed("t3", heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
	h.same("empty", h.queueOf("a"), "false")
	h.same("closed", len(open()), 0)
	h.Fork("b", "a", "t3")
	h.same("a fork begins empty", h.queueOf("b"), "false")
}

func attached(id, key string, removed bool) *heddlev1.Event {
	a := &heddlev1.Attachment{Id: id, Type: "pr", Key: key, Payload: `{"n":1}`}
	return &heddlev1.Event{Payload: &heddlev1.Event_AttachmentChanged{AttachmentChanged: &heddlev1.AttachmentChanged{Attachment: a, Removed: removed}}}
}

func testAttachments(h *Harness) {
	for _, id := range []string{"a", "b", "c"} {
		h.Create(id, nil)
	}
	h.Create("x", func(r *heddlev1.Thread) { r.Principal = "other" })
	h.Add("a", attached("1", "k", false), attached("2", "k2", false), attached("3", "k3", false))
	h.Add("b", attached("4", "k", false))
	h.Add("c", attached("5", "k", false), archived())
	h.Add("x", attached("6", "k", false))
	key := thread.AttachmentKey{Type: "pr", Key: "k"}
	got, err := h.Attachment(h.ctx(), "a", key)
	h.check(err)
	h.same("by key", got, &heddlev1.Attachment{Id: "1", Type: "pr", Key: "k", Payload: `{"n":1}`})
	none, err := h.Attachment(h.ctx(), "a", thread.AttachmentKey{Type: "p", Key: "rk"})
	h.check(err)
	h.same("no attachment", none == nil, true)
	_, err = h.Attachment(h.ctx(), "nobody", key)
	h.wantReason("of no thread", err, errdefs.ThreadNotFound)
	list := func(after string, limit int) string {
		rows, err := h.Attachments(h.ctx(), "a", after, limit)
		h.check(err)
		out := ""
		for _, r := range rows {
			out += r.GetId()
		}
		return out
	}
	h.same("first page", list("", 2), "12")
	h.same("second page", list("2", 2), "3")
	owners := func(principal string, half *bool, after string, limit int) string {
		rows, err := h.AttachmentOwners(h.ctx(), store.AttachmentOwners{Principal: principal, AttachmentKey: key, Archived: half, After: after, Limit: limit})
		h.check(err)
		return fmt.Sprint(rows)
	}
	h.same("owners", owners("local", nil, "", 9), "[{a false} {b false} {c true}]")
	h.same("owners after one", owners("local", nil, "a", 1), "[{b false}]")
	h.same("archived owners", owners("local", proto.Bool(true), "", 9), "[{c true}]")
	h.same("owners of another", owners("other", nil, "", 9), "[{x false}]")
	h.Add("a", attached("1", "k", true))
	h.same("removed", list("", 9), "23")
	h.same("one owner less", owners("local", nil, "", 9), "[{b false} {c true}]")
	h.check(h.DeleteThread(h.ctx(), "b"))
	h.same("deleted", owners("local", nil, "", 9), "[{c true}]")
}

func place(section, position string) *heddlev1.Event {
	c := &heddlev1.SectionChanged{}
	if section != "" {
		c.Place = &heddlev1.SectionPlace{SectionId: section, Position: []byte(position)}
	}
	return &heddlev1.Event{Payload: &heddlev1.Event_SectionChanged{SectionChanged: c}}
}

func member(project string) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ProjectChanged{ProjectChanged: &heddlev1.ProjectChanged{ProjectId: project}}}
}

func testGroups(h *Harness) {
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		h.Create(id, nil)
		h.AddTurn(id, "t-"+id)
	}
	h.Create("x", func(r *heddlev1.Thread) { r.Principal = "other" })
	h.Add("a", place("s1", "m"), member("p1"))
	h.Add("b", place("s1", "ma"))
	h.Add("c", place("s1", "b"), member("p1"))
	h.Add("d", place("s2", "m"), member("p2"))
	h.Add("x", place("s1", "m"), member("p1"))
	ids := func(req *heddlev1.ListThreadsRequest) []string { return threadIDs(h.list(req).GetThreads()) }
	s1, p1 := proto.String("s1"), proto.String("p1")
	placed := &heddlev1.ListThreadsRequest{SectionId: s1, SortKey: "section_position", Ascending: true}
	h.same("by place", ids(placed), []string{"c", "a", "b"})
	h.same("by place, last first", ids(&heddlev1.ListThreadsRequest{SectionId: s1, SortKey: "section_position"}), []string{"b", "a", "c"})
	h.same("by creation", ids(&heddlev1.ListThreadsRequest{SectionId: s1}), []string{"c", "b", "a"})
	h.same("in none", ids(&heddlev1.ListThreadsRequest{SectionId: proto.String("")}), []string{"e"})
	h.same("project", ids(&heddlev1.ListThreadsRequest{ProjectId: p1}), []string{"c", "a"})
	h.same("project and section", ids(&heddlev1.ListThreadsRequest{ProjectId: p1, SectionId: s1, SortKey: "section_position", Ascending: true}), []string{"c", "a"})
	h.same("no project", ids(&heddlev1.ListThreadsRequest{ProjectId: proto.String("")}), []string{"e", "b"})
	h.AddTurn("a", "again")
	h.same("newest member", ids(&heddlev1.ListThreadsRequest{ProjectId: p1, SortKey: "updated_at", PageSize: 1}), []string{"a"})
	h.Add("a", archived())
	h.same("archived member", ids(&heddlev1.ListThreadsRequest{ProjectId: p1, SortKey: "updated_at"}), []string{"c"})
	h.same("in the archive", ids(&heddlev1.ListThreadsRequest{SectionId: s1, SortKey: "section_position", Archived: true}), []string{"a"})
	placed.PageSize = 1
	page := h.list(placed)
	placed.PageToken = page.GetNextPageToken()
	h.same("second page by place", ids(placed), []string{"b"})
	h.same("turned round", ids(&heddlev1.ListThreadsRequest{SectionId: s1, SortKey: "section_position", PageToken: page.GetPreviousPageToken()}), []string{"c"})
	_, err := h.ListThreads(h.ctx(), "local", &heddlev1.ListThreadsRequest{SectionId: s1, PageToken: page.GetNextPageToken()})
	h.wantReason("token of another sort key", err, errdefs.InvalidCursor)
	_, err = h.ListThreads(h.ctx(), "local", &heddlev1.ListThreadsRequest{SortKey: "section_position"})
	h.wantReason("places of all", err, errdefs.InvalidArgument)
	h.Add("c", place("", ""), member(""))
	h.same("moved out", ids(&heddlev1.ListThreadsRequest{SectionId: s1, SortKey: "section_position"}), []string{"b"})
	h.check(h.DeleteThread(h.ctx(), "b"))
	h.same("deleted", len(ids(&heddlev1.ListThreadsRequest{SectionId: s1, SortKey: "section_position"})), 0)
	row, err := h.Thread(h.ctx(), "d")
	h.check(err)
	h.same("row", row.GetSection().GetSectionId()+row.GetProjectId(), "s2p2")
}

func testRecords(h *Harness) {
	h.check(h.PutRecords(h.ctx(), "ann", "k", store.Record{ID: "b", Value: []byte("2")}, store.Record{ID: "a", Value: []byte("1")}))
	h.check(h.PutRecords(h.ctx(), "anna", "k", store.Record{ID: "c", Value: []byte("3")}))
	h.check(h.PutRecords(h.ctx(), "ann", "kk", store.Record{ID: "d", Value: []byte{}}))
	all := func(principal, kind string) string {
		rows, err := h.Records(h.ctx(), principal, kind)
		h.check(err)
		var b bytes.Buffer
		for _, r := range rows {
			fmt.Fprintf(&b, "%s=%s ", r.ID, r.Value)
		}
		return b.String()
	}
	h.same("records", all("ann", "k"), "a=1 b=2 ")
	h.same("of another", all("anna", "k"), "c=3 ")
	h.same("of another kind", all("ann", "kk"), "d= ")
	h.same("of nobody", all("", "k"), "")
	h.check(h.PutRecords(h.ctx(), "ann", "k", store.Record{ID: "a"}, store.Record{ID: "b", Value: []byte("4")}))
	h.same("changed", all("ann", "k"), "b=4 ")
	v, err := h.Record(h.ctx(), "ann", "k", "b")
	h.check(err)
	h.same("one", string(v), "4")
	v, err = h.Record(h.ctx(), "ann", "k", "a")
	h.check(err)
	h.same("removed", v == nil, true)
}
