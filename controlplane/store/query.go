package store

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Page sizes of listings.
const (
	DefaultPage = 25
	MaxPage     = 200
)

// PageBytes is how much a page holds before it ends early, so that an answer
// fits a message whatever its rows hold. A page has at least one row.
const PageBytes = 512 << 10

// Fit returns how many of the rows a page of PageBytes holds.
func Fit[T any](rows []T, size func(T) int) int {
	total := 0
	for i, r := range rows {
		if total += size(r); total > PageBytes && i > 0 {
			return i
		}
	}
	return len(rows)
}

// PageSize bounds a requested page size.
func PageSize(n int32) int {
	switch {
	case n <= 0:
		return DefaultPage
	case n > MaxPage:
		return MaxPage
	}
	return int(n)
}

// ThreadQuery is a parsed ListThreadsRequest.
type ThreadQuery struct {
	Principal string
	Size      int
	// Updated sorts by update instead of creation.
	Updated bool
	// Placed sorts by the place in the section.
	Placed bool
	// Ascending is the direction of reading; Reverse says that the page has to
	// be turned round before it is returned.
	Ascending, Reverse bool
	Start              *Token
	// Term is the folded search term.
	Term string

	req *heddlev1.ListThreadsRequest
}

// ParseThreadQuery checks a request.
func ParseThreadQuery(principal string, req *heddlev1.ListThreadsRequest) (*ThreadQuery, error) {
	q := &ThreadQuery{Principal: principal, Size: PageSize(req.GetPageSize()), Ascending: req.GetAscending(), Term: Fold(req.GetSearchTerm()), req: req}
	switch req.GetSortKey() {
	case "", "created_at":
	case "updated_at", "recency_at":
		q.Updated = true
	case "section_position":
		q.Placed = true
		if q.Section() == "" {
			return nil, errdefs.New(errdefs.InvalidArgument, "section-position sorting requires a section filter")
		}
	default:
		return nil, errdefs.New(errdefs.InvalidArgument, "unknown sort key %q; use created_at, updated_at or section_position", req.GetSortKey())
	}
	var err error
	if q.Start, err = ParseToken(req.GetPageToken(), q.kind()); err != nil {
		return nil, err
	}
	if req.GetBackwards() && q.Start != nil {
		q.Ascending, q.Reverse, q.Start.Inclusive = !q.Ascending, true, false
	}
	return q, nil
}

func (q *ThreadQuery) kind() byte {
	switch {
	case q.Placed:
		return TokenSection
	case q.Updated:
		return TokenUpdated
	}
	return TokenCreated
}

// Place orders the threads of a section byte by byte: their positions, which
// hold no zero byte, then their ids.
func Place(t *heddlev1.Thread) string {
	return string(t.GetSection().GetPosition()) + "\x00" + t.GetId()
}

// token is the position of a row.
func (q *ThreadQuery) token(t *heddlev1.Thread, inclusive bool) string {
	tok := Token{Kind: q.kind(), ID: t.GetId(), Inclusive: inclusive}
	if q.Placed {
		tok.ID = Place(t)
	} else {
		tok.Major = q.Key(t)
	}
	return tok.Encode()
}

// Archived says which half of the threads is asked for.
func (q *ThreadQuery) Archived() bool { return q.req.GetArchived() }

// Key returns the time that the query sorts by.
func (q *ThreadQuery) Key(t *heddlev1.Thread) int64 {
	if q.Updated {
		return t.GetUpdatedAtMs()
	}
	return t.GetCreatedAtMs()
}

// Match reports whether a row satisfies every filter.
func (q *ThreadQuery) Match(t *heddlev1.Thread) bool {
	r := q.req
	return t.GetPrincipal() == q.Principal && t.GetArchived() == r.GetArchived() &&
		(!r.GetWithTurns() || t.GetTurnCount() > 0) &&
		(r.GetParentThreadId() == "" || t.GetParentThreadId() == r.GetParentThreadId()) &&
		oneOf(r.GetCwds(), t.GetSettings().GetCwd()) &&
		oneOf(r.GetModelProviders(), t.GetSettings().GetModelProvider()) &&
		oneOf(r.GetSources(), t.GetSource()) &&
		(r.SectionId == nil || t.GetSection().GetSectionId() == r.GetSectionId()) &&
		(r.ProjectId == nil || t.GetProjectId() == r.GetProjectId()) &&
		(q.Term == "" || strings.Contains(SearchText(t), q.Term))
}

// WithTurns, Cwds, Providers, Sources and Parent expose the exact filters to
// stores that can answer them from an index.
func (q *ThreadQuery) WithTurns() bool { return q.req.GetWithTurns() }

// Cwds are the accepted working folders; empty means any.
func (q *ThreadQuery) Cwds() []string { return q.req.GetCwds() }

// Providers are the accepted model providers; empty means any.
func (q *ThreadQuery) Providers() []string { return q.req.GetModelProviders() }

// Sources are the accepted kinds of client; empty means any.
func (q *ThreadQuery) Sources() []string { return q.req.GetSources() }

// Parent is the wanted parent thread; empty means any.
func (q *ThreadQuery) Parent() string { return q.req.GetParentThreadId() }

// Section is the wanted section; empty means any, or with BySection none.
func (q *ThreadQuery) Section() string { return q.req.GetSectionId() }

// BySection reports whether sections are filtered at all.
func (q *ThreadQuery) BySection() bool { return q.req.SectionId != nil }

// Project is the wanted project; empty means any, or with ByProject none.
func (q *ThreadQuery) Project() string { return q.req.GetProjectId() }

// ByProject reports whether projects are filtered at all.
func (q *ThreadQuery) ByProject() bool { return q.req.ProjectId != nil }

// Respond makes the answer from the rows that were found in reading order, one
// more than Size when there are further ones.
func (q *ThreadQuery) Respond(rows []*heddlev1.Thread) *heddlev1.ListThreadsResponse {
	more := len(rows) > q.Size
	if more {
		rows = rows[:q.Size]
	}
	if n := Fit(rows, func(t *heddlev1.Thread) int { return proto.Size(t) }); n < len(rows) {
		rows, more = rows[:n], true
	}
	if q.Reverse {
		slices.Reverse(rows)
	}
	resp := &heddlev1.ListThreadsResponse{Threads: rows}
	if len(rows) == 0 {
		return resp
	}
	first, last := rows[0], rows[len(rows)-1]
	if more || q.Reverse {
		resp.NextPageToken = q.token(last, false)
	}
	resp.PreviousPageToken = q.token(first, true)
	return resp
}

// SearchText is what a search term is looked for in.
func SearchText(t *heddlev1.Thread) string {
	return Fold(t.GetName() + "\n" + t.GetPreview())
}

// Fold makes a text comparable without regard to case.
func Fold(s string) string { return strings.ToLower(s) }

func oneOf(allowed []string, v string) bool {
	return len(allowed) == 0 || slices.Contains(allowed, v)
}
