package chain

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ListTurns answers a page of turns, newest first unless ascending.
func ListTurns(r Rows, req *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	tok, err := store.ParseToken(req.GetPageToken(), store.TokenTurns)
	if err != nil {
		return nil, err
	}
	segs, err := segments(r, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	row, _, err := r.Head(req.GetThreadId())
	if err != nil {
		return nil, err
	}
	size := store.PageSize(req.GetPageSize())
	span := turnSpan{lo: 1, hi: math.MaxInt64, desc: !req.GetAscending(), limit: size + 1}
	if req.GetUpToTurnId() != "" {
		t, err := Turn(r, req.GetThreadId(), req.GetUpToTurnId())
		if err != nil {
			return nil, err
		}
		span.hi = t.GetOrdinal()
	}
	if tok != nil {
		span.lo, span.hi = boundOrdinals(span.lo, span.hi, span.desc, tok)
	}
	found, err := turnRange(r, segs, req.GetThreadId(), span)
	if err != nil {
		return nil, err
	}
	more := len(found) > size
	if more {
		found = found[:size]
	}
	resp := &heddlev1.ListTurnsResponse{Head: row.GetLastSeq()}
	bytes := 0
	for i, f := range found {
		items, err := f.items(r, req.GetView())
		if err != nil {
			return nil, err
		}
		row := &heddlev1.TurnWithItems{Turn: f.turn, Items: items}
		if bytes += proto.Size(row); bytes > store.PageBytes && i > 0 {
			found, more = found[:i], true
			break
		}
		resp.Turns = append(resp.Turns, row)
	}
	if len(found) == 0 {
		return resp, nil
	}
	if more {
		resp.NextPageToken = store.Token{Kind: store.TokenTurns, Major: found[len(found)-1].turn.GetOrdinal()}.Encode()
	}
	resp.PreviousPageToken = store.Token{Kind: store.TokenTurns, Major: found[0].turn.GetOrdinal(), Inclusive: true}.Encode()
	return resp, nil
}

func boundOrdinals(lo, hi int64, desc bool, tok *store.Token) (int64, int64) {
	step := int64(1)
	if tok.Inclusive {
		step = 0
	}
	if desc {
		return lo, min(hi, tok.Major-step)
	}
	return max(lo, tok.Major+step), hi
}

// seenTurn is a turn as the reading thread sees it, with its segment.
type seenTurn struct {
	segment
	turn *heddlev1.Turn
}

// turnSpan names turns with lo <= ordinal <= hi, in one direction, up to a limit.
type turnSpan struct {
	lo, hi int64
	desc   bool
	limit  int
}

// inOrder are the segments, newest first, in the direction of a reading.
func inOrder(segs []segment, desc bool) []segment {
	if desc {
		return segs
	}
	ordered := slices.Clone(segs)
	slices.Reverse(ordered)
	return ordered
}

// turnRange collects turns over the segments.
func turnRange(r Rows, segs []segment, threadID string, span turnSpan) ([]seenTurn, error) {
	var found []seenTurn
	for _, s := range inOrder(segs, span.desc) {
		l, h := max(span.lo, s.lo), min(span.hi, s.hi)
		if l > h || len(found) >= span.limit {
			continue
		}
		var inner error
		err := r.Turns(s.threadID, l, h, span.desc, func(t *heddlev1.Turn) bool {
			if s.hidden(t.GetOrdinal(), t.GetFirstSeq()) {
				return true
			}
			t, inner = s.turn(r, threadID, t)
			if inner == nil {
				found = append(found, seenTurn{segment: s, turn: t})
			}
			return inner == nil && len(found) < span.limit
		})
		if err == nil {
			err = inner
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// items returns what the view shows of a turn.
func (f seenTurn) items(r Rows, view heddlev1.ItemsView) ([]*heddlev1.Item, error) {
	ord := f.turn.GetOrdinal()
	switch view {
	case heddlev1.ItemsView_ITEMS_VIEW_NONE:
		return nil, nil
	case heddlev1.ItemsView_ITEMS_VIEW_FULL:
		rows, err := itemRange(r, []segment{f.segment}, thread.ItemKey{Ordinal: ord}, thread.ItemKey{Ordinal: ord, StartSeq: math.MaxUint64}, false, unbounded())
		return itemsOf(rows), err
	}
	var rows []thread.ItemRow
	var inner error
	err := r.UserItems(f.threadID, ord, func(it thread.ItemRow) bool {
		var ok bool
		if it, ok, inner = f.item(r, it); ok {
			rows = append(rows, it)
		}
		return inner == nil
	})
	if err == nil {
		err = inner
	}
	if err != nil {
		return nil, err
	}
	if m := f.turn.GetLastAgentMessage(); m != nil {
		last, ok, err := r.ItemByID(f.threadID, m.GetId())
		if err != nil {
			return nil, err
		}
		if !ok || last.Ordinal != ord {
			// The id was used again by a later item: the turn's copy stands.
			last = thread.ItemRow{Item: m, ItemKey: thread.ItemKey{Ordinal: ord, StartSeq: math.MaxUint64}}
		}
		rows = append(rows, last)
		slices.SortStableFunc(rows, func(a, b thread.ItemRow) int {
			switch {
			case a.Less(b.ItemKey):
				return -1
			case b.Less(a.ItemKey):
				return 1
			}
			return 0
		})
	}
	return itemsOf(rows), nil
}

func itemsOf(rows []thread.ItemRow) []*heddlev1.Item {
	items := make([]*heddlev1.Item, 0, len(rows))
	for _, r := range rows {
		items = append(items, r.Item)
	}
	return items
}

// ListItems answers a page of items, oldest first unless descending.
func ListItems(r Rows, req *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error) {
	tok, err := store.ParseToken(req.GetPageToken(), store.TokenItems)
	if err != nil {
		return nil, err
	}
	segs, err := segments(r, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	lo, hi := thread.ItemKey{}, thread.ItemKey{Ordinal: math.MaxInt64, StartSeq: math.MaxUint64}
	if req.GetTurnId() != "" {
		t, err := Turn(r, req.GetThreadId(), req.GetTurnId())
		if err != nil {
			return nil, err
		}
		lo, hi = thread.ItemKey{Ordinal: t.GetOrdinal()}, thread.ItemKey{Ordinal: t.GetOrdinal(), StartSeq: math.MaxUint64}
	}
	if tok != nil {
		lo, hi = boundKeys(lo, hi, req.GetDescending(), tok)
	}
	size := store.PageSize(req.GetPageSize())
	rows, err := itemRange(r, segs, lo, hi, req.GetDescending(), bound{rows: size + 1, bytes: store.PageBytes})
	if err != nil {
		return nil, err
	}
	more := len(rows) > size
	if more {
		rows = rows[:size]
	}
	if n := store.Fit(rows, func(it thread.ItemRow) int { return proto.Size(it.Item) }); n < len(rows) {
		rows, more = rows[:n], true
	}
	resp := &heddlev1.ListItemsResponse{Items: itemsOf(rows)}
	if len(rows) == 0 {
		return resp, nil
	}
	if more {
		resp.NextPageToken = itemToken(rows[len(rows)-1], false)
	}
	resp.PreviousPageToken = itemToken(rows[0], true)
	return resp, nil
}

func itemToken(it thread.ItemRow, inclusive bool) string {
	return store.Token{Kind: store.TokenItems, Major: it.Ordinal, Minor: it.StartSeq, Inclusive: inclusive}.Encode()
}

func boundKeys(lo, hi thread.ItemKey, desc bool, tok *store.Token) (thread.ItemKey, thread.ItemKey) {
	at := thread.ItemKey{Ordinal: tok.Major, StartSeq: tok.Minor}
	if desc {
		if !tok.Inclusive {
			if at.StartSeq > 0 {
				at.StartSeq--
			} else {
				at = thread.ItemKey{Ordinal: at.Ordinal - 1, StartSeq: math.MaxUint64}
			}
		}
		if at.Less(hi) {
			hi = at
		}
		return lo, hi
	}
	if !tok.Inclusive {
		at.StartSeq++
	}
	if lo.Less(at) {
		lo = at
	}
	return lo, hi
}

// bound says when enough was collected: at a count of rows, or with the first
// row past a count of bytes.
type bound struct{ rows, bytes int }

func unbounded() bound { return bound{rows: math.MaxInt, bytes: math.MaxInt} }

// itemRange collects items with lo <= key <= hi over the segments.
func itemRange(r Rows, segs []segment, lo, hi thread.ItemKey, desc bool, limit bound) ([]thread.ItemRow, error) {
	var rows []thread.ItemRow
	bytes := 0
	more := func() bool { return len(rows) < limit.rows && bytes <= limit.bytes }
	for _, s := range inOrder(segs, desc) {
		l, h := lo, hi
		if l.Ordinal < s.lo {
			l = thread.ItemKey{Ordinal: s.lo}
		}
		if h.Ordinal > s.hi {
			h = thread.ItemKey{Ordinal: s.hi, StartSeq: math.MaxUint64}
		}
		if h.Less(l) || !more() {
			continue
		}
		var inner error
		err := r.Items(s.threadID, l, h, desc, func(it thread.ItemRow) bool {
			var ok bool
			if it, ok, inner = s.item(r, it); ok {
				rows = append(rows, it)
				bytes += proto.Size(it.Item)
			}
			return inner == nil && more()
		})
		if err == nil {
			err = inner
		}
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}
