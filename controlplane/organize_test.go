package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (r *rig) organize() heddlev1.OrganizeServiceClient {
	return heddlev1.NewOrganizeServiceClient(r.conn)
}

// threadsWithTurns starts threads that are listed.
func (r *rig) threadsWithTurns(ctx context.Context, n int) []string {
	r.t.Helper()
	var ids []string
	for i := range n {
		resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{})
		if err != nil {
			r.t.Fatal(err)
		}
		id := resp.GetThread().GetId()
		r.model.script(speak(fmt.Sprint("m", i), "done"))
		f := r.follow(id, 1)
		r.startTurn(ctx, id, fmt.Sprint("turn ", i))
		f.turnEnd()
		ids = append(ids, id)
	}
	return ids
}

// names shows threads by their place among all.
func names(all []string, resp *heddlev1.ListThreadsResponse) string {
	out := ""
	for _, t := range resp.GetThreads() {
		for i, id := range all {
			if id == t.GetId() {
				out += fmt.Sprint(i)
			}
		}
	}
	return out
}

func (r *rig) inSection(ctx context.Context, all []string, section string) string {
	r.t.Helper()
	resp, err := r.threads.ListThreads(ctx, &heddlev1.ListThreadsRequest{SectionId: &section, SortKey: "section_position", Ascending: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return names(all, resp)
}

func TestSections(t *testing.T) {
	r, restart := durable(t)
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	ids := r.threadsWithTurns(ctx, 4)
	made, err := r.organize().CreateSection(ctx, &heddlev1.CreateSectionRequest{Name: "  work ", Appearance: &heddlev1.SectionAppearance{Color: proto.String("red")}})
	if err != nil {
		t.Fatal(err)
	}
	work := made.GetSection().GetId()
	move := func(i int, section string, before string) error {
		_, err := r.organize().MoveToSection(ctx, &heddlev1.MoveToSectionRequest{ThreadId: ids[i], SectionId: section, BeforeThreadId: before})
		return err
	}
	for _, m := range []struct {
		i      int
		before string
	}{{0, ""}, {1, ""}, {2, ids[0]}, {3, ids[1]}, {1, ids[2]}} {
		if err := move(m.i, work, m.before); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.inSection(ctx, ids, work); got != "1203" {
		t.Error(got)
	}
	if _, err := r.threads.ArchiveThread(ctx, &heddlev1.ArchiveThreadRequest{ThreadId: ids[2]}); err != nil {
		t.Fatal(err)
	}
	if err := move(3, work, ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.threads.UnarchiveThread(ctx, &heddlev1.UnarchiveThreadRequest{ThreadId: ids[2]}); err != nil {
		t.Fatal(err)
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	if got := r.inSection(ctx, ids, work); got != "1230" {
		t.Error(got)
	}
	refusal(t, "itself", move(0, work, ids[0]), "cannot be moved before itself")
	refusal(t, "elsewhere", move(0, "01984de2-8f74-7c91-a3b2-5c5e937cf318", ids[1]), "is not in section")
	refusal(t, "none", move(0, "", ids[1]), "beforeThreadId requires a non-null sectionId")
	refusal(t, "no section", move(0, "nope", ""), "section nope does not exist")
	upd, err := r.organize().UpdateSection(ctx, &heddlev1.UpdateSectionRequest{SectionId: work, Name: "home"})
	if err != nil || upd.GetSection().GetName() != "home" || upd.GetSection().GetAppearance().GetColor() != "red" {
		t.Error(upd, err)
	}
	_, err = r.organize().CreateSection(ctx, &heddlev1.CreateSectionRequest{Name: " "})
	refusal(t, "no name", err, "section name must not be empty")
	_, err = r.organize().CreateSection(ctx, &heddlev1.CreateSectionRequest{Name: "x", Appearance: &heddlev1.SectionAppearance{Icon: proto.String(strings.Repeat("x", 65))}})
	refusal(t, "icon", err, "section appearance icon must not exceed 64 bytes")
	del, err := r.organize().DeleteSection(ctx, &heddlev1.DeleteSectionRequest{SectionId: work})
	if err != nil || len(del.GetThreadIds()) != 4 {
		t.Fatal(del, err)
	}
	list, err := r.organize().ListSections(ctx, &heddlev1.ListSectionsRequest{})
	if err != nil || len(list.GetSections()) != 1 || list.GetSections()[0].GetName() != "Pinned" {
		t.Error(list, err)
	}
	_, err = r.organize().DeleteSection(ctx, &heddlev1.DeleteSectionRequest{SectionId: list.GetSections()[0].GetId()})
	refusal(t, "built in", err, "cannot be deleted")
	if r.row(ids[0]).GetSection() != nil {
		t.Error("a thread is still in a deleted section")
	}
	for i := range 200 {
		if _, err := r.organize().CreateSection(ctx, &heddlev1.CreateSectionRequest{Name: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = r.organize().CreateSection(ctx, &heddlev1.CreateSectionRequest{Name: "one more"})
	refusal(t, "limit", err, "200 sections")
}

func TestProjects(t *testing.T) {
	r, restart := durable(t)
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	ids := r.threadsWithTurns(ctx, 3)
	create := func(key, name string, threads ...string) *heddlev1.CreateProjectResponse {
		t.Helper()
		resp, err := r.organize().CreateProject(ctx, &heddlev1.CreateProjectRequest{IdempotencyKey: key, Name: name, Roots: []string{"/w/../w/" + name}, ThreadIds: threads})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	a := create("ka", "a").GetProject()
	b := create("kb", "b", ids[0], ids[1])
	if a.GetRoots()[0] != "/w/a" || b.GetProject().GetRecencyAtMs() != r.row(ids[1]).GetUpdatedAtMs() || len(b.GetThreadIds()) != 2 {
		t.Error(a, b)
	}
	if again := create("ka", "other"); again.GetCreated() || again.GetProject().GetName() != "a" {
		t.Error(again)
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	order := func(req *heddlev1.ListProjectsRequest) string {
		t.Helper()
		out := ""
		for {
			resp, err := r.organize().ListProjects(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range resp.GetProjects() {
				out += p.GetName()
			}
			if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
				return out
			}
			out += " "
		}
	}
	c := create("kc", "c").GetProject()
	if _, err := r.organize().MoveProject(ctx, &heddlev1.MoveProjectRequest{ProjectId: c.GetId(), BeforeProjectId: a.GetId()}); err != nil {
		t.Fatal(err)
	}
	if got := order(&heddlev1.ListProjectsRequest{PageSize: 1}); got != "c a b" {
		t.Error(got)
	}
	if got := order(&heddlev1.ListProjectsRequest{ByRecency: true, Descending: true}); got != "bca" {
		t.Error(got)
	}
	_, err := r.organize().ListProjects(ctx, &heddlev1.ListProjectsRequest{PageToken: "x"})
	refusal(t, "cursor", err, "invalid project cursor")
	set := func(thread, project string) (*heddlev1.SetProjectResponse, error) {
		return r.organize().SetProject(ctx, &heddlev1.SetProjectRequest{ThreadId: thread, ProjectId: project})
	}
	if resp, err := set(ids[2], a.GetId()); err != nil || !resp.GetChanged() || resp.GetThread().GetProjectId() != a.GetId() {
		t.Fatal(resp, err)
	}
	if resp, err := set(ids[2], a.GetId()); err != nil || resp.GetChanged() {
		t.Error(resp, err)
	}
	_, err = set(ids[2], "nope")
	refusal(t, "unknown", err, "project not found: nope")
	fork, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: ids[2]})
	if err != nil || fork.GetThread().GetProjectId() != a.GetId() {
		t.Error(fork, err)
	}
	begun, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{ProjectId: a.GetId(), Ephemeral: true})
	if err != nil || begun.GetThread().GetProjectId() != a.GetId() {
		t.Error(begun, err)
	}
	_, err = set(begun.GetThread().GetId(), "")
	refusal(t, "ephemeral", err, "does not support metadata updates")
	_, err = r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{ProjectId: "nope"})
	refusal(t, "start in none", err, "project not found: nope")
	id := b.GetProject().GetId()
	listed, err := r.threads.ListThreads(ctx, &heddlev1.ListThreadsRequest{ProjectId: &id})
	if err != nil || names(ids, listed) != "10" {
		t.Error(listed, err)
	}
	for name, req := range map[string]*heddlev1.CreateProjectRequest{
		"idempotencyKey must not be empty":             {Name: "x"},
		"idempotencyKey must be at most 512":           {Name: "x", IdempotencyKey: strings.Repeat("k", 513)},
		"project name must not be empty":               {IdempotencyKey: "k1"},
		"duplicate project root: /r":                   {IdempotencyKey: "k1", Name: "x", Roots: []string{"/r", "/r/"}},
		"a project root must be an absolute path":      {IdempotencyKey: "k1", Name: "x", Roots: []string{"r"}},
		"thread not found: t":                          {IdempotencyKey: "k1", Name: "x", ThreadIds: []string{"t"}},
		"project metadata must not exceed":             {IdempotencyKey: "k1", Name: "x", Metadata: map[string]string{"k": strings.Repeat("x", 33<<10)}},
		"thread not found: " + begun.GetThread().Id:    {IdempotencyKey: "k1", Name: "x", ThreadIds: []string{begun.GetThread().GetId()}},
		"idempotencyKey must be at most 512 bytes":     {IdempotencyKey: strings.Repeat("k", 600), Name: "x"},
		"project name must not exceed":                 {IdempotencyKey: "k1", Name: strings.Repeat("x", 5<<10)},
		"a project has at most 64 roots":               {IdempotencyKey: "k1", Name: "x", Roots: make([]string, 65)},
		"at most 1000 threads can be imported at once": {IdempotencyKey: "k1", Name: "x", ThreadIds: make([]string, 1001)},
	} {
		_, err := r.organize().CreateProject(ctx, req)
		refusal(t, "create", err, name)
	}
	del, err := r.organize().DeleteProject(ctx, &heddlev1.DeleteProjectRequest{ProjectId: id})
	if err != nil || len(del.GetThreadIds()) != 2 || r.row(ids[0]).GetProjectId() != "" {
		t.Error(del, err)
	}
	_, err = r.organize().CreateProject(ctx, &heddlev1.CreateProjectRequest{IdempotencyKey: "kb", Name: "again"})
	refusal(t, "deleted key", err, "idempotency key refers to deleted project: kb")
	_, err = r.organize().GetProject(ctx, &heddlev1.GetProjectRequest{ProjectId: id})
	refusal(t, "deleted", err, "project not found: "+id)
}

func TestAttachments(t *testing.T) {
	r, restart := durable(t)
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	ids := r.threadsWithTurns(ctx, 2)
	add := func(thread, key, payload string) (*heddlev1.AddAttachmentResponse, error) {
		return r.organize().AddAttachment(ctx, &heddlev1.AddAttachmentRequest{ThreadId: thread, Type: "pr", Key: key, Payload: payload})
	}
	first, err := add(ids[0], "k", `{"n":1}`)
	if err != nil || !first.GetCreated() {
		t.Fatal(first, err)
	}
	if again, err := add(ids[0], "k", `{"n":2}`); err != nil || again.GetCreated() || !proto.Equal(again.GetAttachment(), first.GetAttachment()) {
		t.Error(again, err)
	}
	for i := range 3 {
		if _, err := add(ids[1], fmt.Sprint("k", i), "null"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := add(ids[1], "k", "null"); err != nil {
		t.Fatal(err)
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	keys := func(thread string) string {
		t.Helper()
		out, token := "", ""
		for {
			resp, err := r.organize().ListAttachments(ctx, &heddlev1.ListAttachmentsRequest{ThreadId: thread, PageSize: 3, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range resp.GetAttachments() {
				out += a.GetKey() + " "
			}
			if token = resp.GetNextPageToken(); token == "" {
				return out
			}
			out += "| "
		}
	}
	if got := keys(ids[1]); got != "k0 k1 k2 | k " {
		t.Error(got)
	}
	fork, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: ids[1]})
	if err != nil || keys(fork.GetThread().GetId()) != "k0 k1 k2 | k " || fork.GetThread().GetAttachmentCount() != 4 {
		t.Error(fork, err)
	}
	if _, err := r.threads.ArchiveThread(ctx, &heddlev1.ArchiveThreadRequest{ThreadId: ids[1]}); err != nil {
		t.Fatal(err)
	}
	owners := func(archived *bool) int {
		t.Helper()
		resp, err := r.organize().ListAttachmentOwners(ctx, &heddlev1.ListAttachmentOwnersRequest{Type: "pr", Key: "k", Archived: archived})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.GetOwners())
	}
	if a, b, c := owners(nil), owners(proto.Bool(true)), owners(proto.Bool(false)); a != 3 || b != 1 || c != 2 {
		t.Error(a, b, c)
	}
	gone, err := r.organize().RemoveAttachment(ctx, &heddlev1.RemoveAttachmentRequest{ThreadId: ids[1], Type: "pr", Key: "k"})
	if err != nil || gone.GetAttachment() == nil || owners(nil) != 2 {
		t.Error(gone, err)
	}
	gone, err = r.organize().RemoveAttachment(ctx, &heddlev1.RemoveAttachmentRequest{ThreadId: ids[1], Type: "pr", Key: "k"})
	if err != nil || gone.GetAttachment() != nil {
		t.Error(gone, err)
	}
	_, err = add(ids[0], "", "1")
	refusal(t, "key", err, "identityKey must not be empty")
	_, err = add(ids[0], strings.Repeat("k", 257), "1")
	refusal(t, "long key", err, "identityKey must not exceed 256 bytes")
	_, err = add(ids[0], "big", `"`+strings.Repeat("x", 64<<10)+`"`)
	refusal(t, "payload", err, "attachment payload must not exceed 65536 bytes")
	_, err = add(ids[0], "bad", `{`)
	refusal(t, "no json", err, "attachment payload must be JSON")
	_, err = add("nope", "k", "1")
	if !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Error(err)
	}
	for i := range 199 {
		if _, err := add(ids[0], fmt.Sprint("n", i), "1"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = add(ids[0], "one more", "1")
	refusal(t, "limit", err, "at most 200 attachments")
}

func TestMemoryMode(t *testing.T) {
	r, restart := durable(t)
	ctx, th := r.thread(nil)
	if _, err := r.organize().SetMemoryMode(ctx, &heddlev1.SetMemoryModeRequest{ThreadId: th.GetId(), Mode: "disabled"}); err != nil {
		t.Fatal(err)
	}
	restart()
	if got := r.row(th.GetId()).GetMemoryMode(); got != "disabled" {
		t.Error(got)
	}
	_, err := r.organize().SetMemoryMode(context.Background(), &heddlev1.SetMemoryModeRequest{ThreadId: th.GetId(), Mode: "on"})
	refusal(t, "mode", err, "unknown memory mode")
}

func TestForkBeforeATurn(t *testing.T) {
	r := newRig(t)
	ctx, th := r.thread(nil)
	f := r.follow(th.GetId(), 1)
	var turns []string
	for i := range 2 {
		r.model.script(speak(fmt.Sprint("m", i), "done"))
		turns = append(turns, r.startTurn(ctx, th.GetId(), fmt.Sprint("turn ", i)).GetId())
		f.turnEnd()
	}
	fork := func(req *heddlev1.ForkThreadRequest) (*heddlev1.Thread, error) {
		req.ThreadId = th.GetId()
		resp, err := r.threads.ForkThread(ctx, req)
		return resp.GetThread(), err
	}
	second, err := fork(&heddlev1.ForkThreadRequest{BeforeTurnId: turns[1]})
	if err != nil || second.GetTurnCount() != 1 || second.GetPreview() != "turn 0" {
		t.Error(second, err)
	}
	first, err := fork(&heddlev1.ForkThreadRequest{BeforeTurnId: turns[0]})
	if err != nil || first.GetTurnCount() != 0 || first.GetPreview() != "" || first.GetTokenUsage() != nil {
		t.Error(first, err)
	}
	_, err = fork(&heddlev1.ForkThreadRequest{BeforeTurnId: "nope"})
	if !errdefs.Is(err, errdefs.TurnNotFound) {
		t.Error(err)
	}
	_, err = fork(&heddlev1.ForkThreadRequest{BeforeTurnId: turns[1], LastTurnId: turns[1]})
	refusal(t, "both", err, "cannot be combined")
	r.model.script(speak("m", "done"))
	f = r.follow(second.GetId(), second.GetLastSeq())
	r.startTurn(ctx, second.GetId(), "other")
	f.turnEnd()
	wantShown(t, r.last(), []string{"turn 0", "other"}, "turn 1")
}
