package thread

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Fold applies one event to the state and records the changed rows in ch. The
// event's seq, thread id and time must be set. Turns within the event get the
// fields that the fold knows (ordinal, seqs, times), so that the event shows
// the turn as its row does.
//
// An event that breaks an invariant (a second end of a turn, an item outside
// its turn) is refused with an error and changes nothing. A payload of a newer
// version changes nothing but the last seq.
func (s *State) Fold(ev *heddlev1.Event, ch *Changes) error {
	if ev.GetSeq() != s.LastSeq+1 {
		return fmt.Errorf("fold: event has seq %d, want %d", ev.GetSeq(), s.LastSeq+1)
	}
	if s.Row == nil && ev.GetThreadCreated() == nil {
		return fmt.Errorf("fold: the first event of a thread must create it")
	}
	if err := s.apply(ev, ch); err != nil {
		return err
	}
	s.LastSeq = ev.GetSeq()
	return nil
}

func (s *State) apply(ev *heddlev1.Event, ch *Changes) error {
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_ThreadCreated:
		return s.created(ev, p.ThreadCreated, ch)
	case *heddlev1.Event_ThreadNamed:
		s.row(ch).Name = p.ThreadNamed.GetName()
	case *heddlev1.Event_ThreadArchived:
		s.row(ch).Archived = true
	case *heddlev1.Event_ThreadUnarchived:
		s.row(ch).Archived = false
	case *heddlev1.Event_SettingsChanged:
		row := s.row(ch)
		row.Grants = AfterSettings(row.GetGrants(), row.GetSettings(), p.SettingsChanged.GetSettings())
		row.Settings = p.SettingsChanged.GetSettings()
	case *heddlev1.Event_PermissionsGranted:
		return s.permissionsGranted(ev, p.PermissionsGranted.GetGrant(), ch)
	case *heddlev1.Event_SandboxReported:
		s.row(ch).SandboxReport = p.SandboxReported.GetReport()
	case *heddlev1.Event_WorkspaceSeen:
		row := s.row(ch)
		row.InstructionSources = p.WorkspaceSeen.GetInstructionSources()
		if !row.GetGitPinned() {
			row.Git = p.WorkspaceSeen.GetGit()
		}
	case *heddlev1.Event_PlacesSeen:
		row := s.row(ch)
		row.Places = MergePlaces(row.GetPlaces(), p.PlacesSeen.GetPlaces())
	case *heddlev1.Event_GitChanged:
		row := s.row(ch)
		row.Git, row.GitPinned = p.GitChanged.GetGit(), true
	case *heddlev1.Event_GoalChanged:
		s.row(ch).Goal = p.GoalChanged.GetGoal()
	case *heddlev1.Event_ReadStateChanged:
		s.readState(ev, p.ReadStateChanged, ch)
	case *heddlev1.Event_ThreadReverted:
		return s.reverted(ev, p.ThreadReverted, ch)
	case *heddlev1.Event_TokenUsageUpdated:
		return s.tokenUsage(ev, p.TokenUsageUpdated, ch)
	case *heddlev1.Event_TurnAccepted:
		return s.turnAccepted(ev, p.TurnAccepted, ch)
	case *heddlev1.Event_TurnStarted:
		return s.turnStarted(ev, p.TurnStarted, ch)
	case *heddlev1.Event_TurnCompleted:
		return s.turnCompleted(ev, p.TurnCompleted, ch)
	case *heddlev1.Event_TurnSettingsChanged:
		return s.turnSettingsChanged(ev, p.TurnSettingsChanged, ch)
	case *heddlev1.Event_SteerAccepted:
		_, err := s.activeTurn(ev, "a steer")
		return err
	case *heddlev1.Event_ItemStarted:
		return s.itemStarted(ev, p.ItemStarted.GetItem(), ch)
	case *heddlev1.Event_ItemCompleted:
		return s.itemCompleted(ev, p.ItemCompleted.GetItem(), ch)
	case *heddlev1.Event_ItemDelta:
		return s.increment(ev, p.ItemDelta.GetItemId())
	case *heddlev1.Event_OutputAdvanced:
		return s.increment(ev, p.OutputAdvanced.GetItemId())
	case *heddlev1.Event_ApprovalRequested:
		return s.approvalRequested(p.ApprovalRequested.GetApproval(), ch)
	case *heddlev1.Event_ApprovalResolved:
		return s.approvalResolved(p.ApprovalResolved.GetApproval(), ch)
	case *heddlev1.Event_ActionsIntended:
		return s.actionsIntended(p.ActionsIntended.GetActions(), ch)
	case *heddlev1.Event_ActionsResolved:
		s.actionsResolved(p.ActionsResolved.GetActionIds(), ch)
	case *heddlev1.Event_HistoryAppended:
		s.history(ev, p.HistoryAppended, ch)
	case *heddlev1.Event_QueueChanged:
		return s.queueChanged(p.QueueChanged, ch)
	case *heddlev1.Event_AttachmentChanged:
		return s.attachmentChanged(p.AttachmentChanged, ch)
	case *heddlev1.Event_SectionChanged:
		s.row(ch).Section = p.SectionChanged.GetPlace()
	case *heddlev1.Event_ProjectChanged:
		s.row(ch).ProjectId = p.ProjectChanged.GetProjectId()
	case *heddlev1.Event_MemoryModeChanged:
		s.row(ch).MemoryMode = p.MemoryModeChanged.GetMode()
	}
	return nil
}

// actionsIntended records actions that are about to be sent, all or none.
func (s *State) actionsIntended(actions []*heddlev1.ActionIntent, ch *Changes) error {
	for _, a := range actions {
		if err := checkID("an action", a.GetActionId()); err != nil {
			return err
		}
	}
	for _, a := range actions {
		s.Actions[a.GetActionId()] = a
		put(&ch.Actions, a.GetActionId(), a)
	}
	return nil
}

// actionsResolved forgets actions whose results are recorded.
func (s *State) actionsResolved(ids []string, ch *Changes) {
	for _, id := range ids {
		if _, ok := s.Actions[id]; ok {
			delete(s.Actions, id)
			put(&ch.Actions, id, nil)
		}
	}
}

// MaxIDBytes bounds the ids of threads, turns, items, actions and approvals.
const MaxIDBytes = 512

func checkID(what, id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return fmt.Errorf("fold: the id of %s has %d bytes, want 1 to %d", what, len(id), MaxIDBytes)
	}
	return nil
}

// row returns a copy of the thread's row that may be changed, and records it.
func (s *State) row(ch *Changes) *heddlev1.Thread {
	s.Row = proto.CloneOf(s.Row)
	ch.Row = s.Row
	return s.Row
}

func (s *State) created(ev *heddlev1.Event, p *heddlev1.ThreadCreated, ch *Changes) error {
	if s.Row != nil {
		return fmt.Errorf("fold: thread %s exists already", s.Row.GetId())
	}
	if err := checkID("a thread", p.GetThread().GetId()); err != nil {
		return err
	}
	row := proto.CloneOf(p.GetThread())
	if row.CreatedAtMs == 0 {
		row.CreatedAtMs = ev.GetTimeMs()
	}
	if row.UpdatedAtMs == 0 {
		row.UpdatedAtMs = row.CreatedAtMs
	}
	if row.State == heddlev1.ThreadState_THREAD_STATE_UNSPECIFIED {
		row.State = heddlev1.ThreadState_THREAD_STATE_IDLE
	}
	p.Thread = proto.CloneOf(row)
	s.Row, ch.Row = row, row
	return nil
}

func (s *State) tokenUsage(ev *heddlev1.Event, p *heddlev1.TokenUsageUpdated, ch *Changes) error {
	if ev.GetTurnId() != "" {
		if _, err := s.activeTurn(ev, "token usage"); err != nil {
			return err
		}
	}
	s.row(ch).TokenUsage = p.GetUsage()
	return nil
}

func (s *State) history(ev *heddlev1.Event, p *heddlev1.HistoryAppended, ch *Changes) {
	if p.GetPrivate() {
		return
	}
	ordinal := s.lastOrdinal()
	if t := s.Turns[ev.GetTurnId()]; t != nil {
		ordinal = t.GetOrdinal()
	}
	if p.GetReplace() {
		ch.Floors = append(ch.Floors, Floor{Seq: ev.GetSeq(), Ordinal: ordinal})
		s.row(ch).HistoryFloor = ev.GetSeq()
	}
	for i, e := range p.GetEntries() {
		ch.History = append(ch.History, HistoryRow{Seq: ev.GetSeq(), Index: i, Ordinal: ordinal, Entry: e})
	}
}

func (s *State) approvalRequested(a *heddlev1.Approval, ch *Changes) error {
	if err := checkID("an approval", a.GetId()); err != nil {
		return err
	}
	if _, ok := s.Approvals[a.GetId()]; ok {
		return fmt.Errorf("fold: approval %s is pending already", a.GetId())
	}
	if a.GetDecision() != heddlev1.Decision_DECISION_UNSPECIFIED {
		return fmt.Errorf("fold: requested approval %s is decided already", a.GetId())
	}
	if a.GetTurnId() != "" && s.Turns[a.GetTurnId()] == nil {
		return fmt.Errorf("fold: approval %s belongs to turn %s, which is not open", a.GetId(), a.GetTurnId())
	}
	s.Approvals[a.GetId()] = a
	put(&ch.Approvals, a.GetId(), a)
	ch.NextRequestID = max(ch.NextRequestID, a.GetRequestId()+1)
	s.waiting(ch)
	return nil
}

func (s *State) approvalResolved(a *heddlev1.Approval, ch *Changes) error {
	if _, ok := s.Approvals[a.GetId()]; !ok {
		return fmt.Errorf("fold: approval %s is not pending", a.GetId())
	}
	if a.GetDecision() == heddlev1.Decision_DECISION_UNSPECIFIED {
		return fmt.Errorf("fold: resolved approval %s has no decision", a.GetId())
	}
	delete(s.Approvals, a.GetId())
	put(&ch.Approvals, a.GetId(), a)
	s.waiting(ch)
	return nil
}

// previewOf returns the first text of a message, bounded to PreviewBytes and
// cut between runes.
func previewOf(m *heddlev1.UserMessage) string {
	var parts []string
	for _, p := range m.GetParts() {
		if t := strings.TrimSpace(p.GetText()); t != "" {
			parts = append(parts, t)
		}
	}
	text := strings.ToValidUTF8(strings.Join(parts, " "), "\uFFFD")
	if len(text) <= PreviewBytes {
		return text
	}
	cut := PreviewBytes
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
