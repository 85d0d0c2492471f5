package protocol

import (
	"encoding/json"
	"errors"
	"path"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Nullable is a text member of which null means something other than absence;
// its field carries the option "default".
type Nullable struct {
	Given, Null bool
	Value       string
}

func (n *Nullable) decodeWire(raw []byte) error {
	n.Given = true
	if n.Null = kindOf(raw) == 'n'; n.Null {
		return nil
	}
	if kindOf(raw) != '"' {
		return wrongType(raw, "a string")
	}
	return json.Unmarshal(raw, &n.Value)
}

// Appearance is how a section looks. Given says that it was there at all.
type Appearance struct {
	Given bool
	Value *heddlev1.SectionAppearance
}

func (a *Appearance) decodeWire(raw []byte) error {
	a.Given = true
	if kindOf(raw) == 'n' {
		return nil
	}
	var f struct {
		Icon  *string `wire:"icon,opt"`
		Color *string `wire:"color,opt"`
	}
	if kindOf(raw) != '{' {
		return wrongType(raw, "struct ThreadSectionAppearance")
	}
	if _, err := Decode(raw, &f); err != nil {
		return err
	}
	a.Value = &heddlev1.SectionAppearance{Icon: f.Icon, Color: f.Color}
	return nil
}

// SectionCreateParams make a section.
type SectionCreateParams struct {
	Name       string     `wire:"name"`
	Appearance Appearance `wire:"appearance,default"`
}

// SectionUpdateParams change a section.
type SectionUpdateParams struct {
	SectionID  string     `wire:"sectionId"`
	Name       string     `wire:"name"`
	Appearance Appearance `wire:"appearance,default"`
}

// SectionParams name a section.
type SectionParams struct {
	SectionID string `wire:"sectionId"`
}

// SectionMoveParams move a thread into a section, within it or out of it.
type SectionMoveParams struct {
	ThreadID       string   `wire:"threadId"`
	SectionID      Nullable `wire:"sectionId"`
	BeforeThreadID *string  `wire:"beforeThreadId,opt"`
}

// Section is the wire form of a section.
type Section struct {
	ID         string             `json:"id"`
	Name       string             `json:"name"`
	Appearance *SectionAppearance `json:"appearance"`
}

// SectionAppearance is the wire form of how a section looks.
type SectionAppearance struct {
	Icon  *string `json:"icon"`
	Color *string `json:"color"`
}

// FromSection makes the wire form of a section.
func FromSection(m *heddlev1.Section) *Section {
	out := &Section{ID: m.GetId(), Name: m.GetName()}
	if a := m.GetAppearance(); a != nil {
		out.Appearance = &SectionAppearance{a.Icon, a.Color}
	}
	return out
}

// ProjectRoot is one folder of a project.
type ProjectRoot struct {
	Path AbsPath `wire:"path" json:"path"`
}

// Paths are the cleaned folders.
func Paths(roots []ProjectRoot) []string {
	out := make([]string, 0, len(roots))
	for _, r := range roots {
		out = append(out, path.Clean(string(r.Path)))
	}
	return out
}

// ProjectCreateParams make a project.
type ProjectCreateParams struct {
	Name           string            `wire:"name"`
	Roots          []ProjectRoot     `wire:"roots"`
	Metadata       map[string]string `wire:"metadata,opt"`
	IdempotencyKey string            `wire:"idempotencyKey"`
}

// ProjectImportParams make a project with members.
type ProjectImportParams struct {
	Name           string            `wire:"name"`
	Roots          []ProjectRoot     `wire:"roots"`
	Metadata       map[string]string `wire:"metadata,opt"`
	IdempotencyKey string            `wire:"idempotencyKey"`
	Threads        []string          `wire:"threads,opt"`
}

// ProjectParams name a project.
type ProjectParams struct {
	ProjectID string `wire:"projectId"`
}

// ProjectUpdateParams change a project.
type ProjectUpdateParams struct {
	ProjectID string             `wire:"projectId"`
	Name      *string            `wire:"name,opt"`
	Roots     *[]ProjectRoot     `wire:"roots,opt"`
	Metadata  *map[string]string `wire:"metadata,opt"`
}

// ProjectMoveParams move a project.
type ProjectMoveParams struct {
	ProjectID       string  `wire:"projectId"`
	BeforeProjectID *string `wire:"beforeProjectId,opt"`
}

// ProjectSortKey is what projects are sorted by.
type ProjectSortKey string

// Variants implements the enumeration.
func (ProjectSortKey) Variants() []string { return []string{"position", "recencyAt"} }

// ProjectListParams page projects.
type ProjectListParams struct {
	Cursor        *string         `wire:"cursor,opt"`
	Limit         *uint32         `wire:"limit,opt"`
	SortKey       *ProjectSortKey `wire:"sortKey,opt"`
	SortDirection *SortDirection  `wire:"sortDirection,opt"`
}

// Project is the wire form of a project.
type Project struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Roots     []ProjectRoot     `json:"roots"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt int64             `json:"createdAt"`
	UpdatedAt int64             `json:"updatedAt"`
	RecencyAt *int64            `json:"recencyAt"`
}

// FromProject makes the wire form of a project.
func FromProject(m *heddlev1.Project) Project {
	out := Project{
		ID: m.GetId(), Name: m.GetName(), Roots: []ProjectRoot{}, Metadata: m.GetMetadata(),
		CreatedAt: m.GetCreatedAtMs() / 1000, UpdatedAt: m.GetUpdatedAtMs() / 1000, RecencyAt: optInt(m.GetRecencyAtMs() / 1000),
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	for _, r := range m.GetRoots() {
		out.Roots = append(out.Roots, ProjectRoot{AbsPath(r)})
	}
	return out
}

// AttachmentAddParams add an attachment. The thread is checked by the handler,
// whose refusals have a code of their own.
type AttachmentAddParams struct {
	Thread         string          `wire:"threadId"`
	AttachmentType string          `wire:"attachmentType"`
	IdentityKey    string          `wire:"identityKey"`
	Payload        json.RawMessage `wire:"payload"`
}

// AttachmentRemoveParams remove an attachment.
type AttachmentRemoveParams struct {
	Thread         string `wire:"threadId"`
	AttachmentType string `wire:"attachmentType"`
	IdentityKey    string `wire:"identityKey"`
}

// AttachmentListParams page a thread's attachments.
type AttachmentListParams struct {
	Thread string  `wire:"threadId"`
	Cursor *string `wire:"cursor,opt"`
	Limit  *uint32 `wire:"limit,opt"`
}

// AttachmentOwnerParams page the threads with an attachment.
type AttachmentOwnerParams struct {
	AttachmentType string  `wire:"attachmentType"`
	IdentityKey    string  `wire:"identityKey"`
	Archived       *bool   `wire:"archived,opt"`
	Cursor         *string `wire:"cursor,opt"`
	Limit          *uint32 `wire:"limit,opt"`
}

// FromAttachment makes the wire form of an attachment.
func FromAttachment(a *heddlev1.Attachment) any {
	return map[string]any{
		"id": a.GetId(), "attachmentType": a.GetType(), "identityKey": a.GetKey(), "payload": json.RawMessage(a.GetPayload()), "createdAt": a.GetCreatedAtMs() / 1000,
	}
}

// MemoryMode says whether memories are used.
type MemoryMode string

// Variants implements the enumeration.
func (MemoryMode) Variants() []string { return []string{"enabled", "disabled"} }

// MemoryModeParams set a thread's memory mode.
type MemoryModeParams struct {
	ThreadID string     `wire:"threadId"`
	Mode     MemoryMode `wire:"mode"`
}

// MemoryStatusParams ask how many memories there are.
type MemoryStatusParams struct {
	MinThreads *uint32 `wire:"minConsolidatedThreads,opt"`
}

// RequestID is the id of another request of the connection, as it was written.
type RequestID struct{ Raw json.RawMessage }

func (r *RequestID) decodeWire(raw []byte) error {
	var text string
	var number int64
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &number) != nil || kindOf(raw) == 'n' {
		return errors.New("data did not match any variant of untagged enum RequestId")
	}
	r.Raw = append(json.RawMessage(nil), raw...)
	return nil
}

// CancelParams name a request that is to be cancelled.
type CancelParams struct {
	RequestID RequestID `wire:"requestId"`
}
