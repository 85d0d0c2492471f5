package controlplane

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// TestI2OneEndWhateverHappens runs turns while people interrupt, steer and answer
// at random moments, and checks the log afterwards.
func TestI2OneEndWhateverHappens(t *testing.T) {
	const rounds = 25
	r := newRig(t)
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	var wg sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(7, uint64(w)))
		set := workspaceWrite([]string{"untrusted", "never", "on-request", "never"}[w])
		if w == 2 {
			set.Sandbox.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
		}
		resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: set})
		if err != nil {
			t.Fatal(err)
		}
		id := resp.GetThread().GetId()
		wg.Go(func() { r.disturb(ctx, id, rng, rounds) })
		wg.Go(func() { r.answerAll(ctx, id, rand.New(rand.NewPCG(9, uint64(w))), rounds) })
	}
	wg.Wait()
}

// anyReply is whatever a model may do.
func anyReply(rng *rand.Rand, n int) reply {
	id := func(s string) string { return fmt.Sprintf("%s%d", s, n) }
	switch rng.IntN(7) {
	case 0:
		return hang(id("h"), "par")
	case 1:
		return cut(id("x"), "par")
	case 2:
		return calls(shell(id("s"), "sleep", `,"yield_time_ms":250`), shell(id("e"), "echo a"))
	case 3:
		return calls(patchOf(id("p"), "n.txt"), shell(id("e"), "echo a"))
	case 4:
		return calls(shell(id("e"), "echo a"), shell(id("e"), "echo a"), shell(id("f"), "exit 3"))
	}
	return speak(id("m"), "te", "xt")
}

func (r *rig) disturb(ctx contextType, id string, rng *rand.Rand, rounds int) {
	for n := range rounds {
		for i := range 3 {
			r.model.script(anyReply(rng, n*100+i))
		}
		resp, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("go")})
		if err != nil {
			r.t.Error(err)
			return
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			// An answer that the turn has ended is as good as any.
			_, _ = r.turns.SteerTurn(ctx, &heddlev1.SteerTurnRequest{ThreadId: id, ExpectedTurnId: resp.GetTurn().GetId(), Input: say("more")})
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		_, _ = r.turns.InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: id})
	}
}

// answerAll answers what is asked until all turns have ended, and checks the log
// on the way.
func (r *rig) answerAll(ctx contextType, id string, rng *rand.Rand, rounds int) {
	f := r.follow(id, 0)
	open := map[string]bool{}
	turn, ended, items := "", 0, map[string]string{}
	for ended < rounds {
		ev := f.next()
		switch p := ev.GetPayload().(type) {
		case *heddlev1.Event_TurnAccepted:
			if turn != "" {
				r.t.Errorf("turn %s begins before the end of %s", ev.GetTurnId(), turn)
			}
			turn = ev.GetTurnId()
		case *heddlev1.Event_ItemStarted:
			item := p.ItemStarted.GetItem()
			if ev.GetTurnId() != turn || open[item.GetId()] {
				r.t.Errorf("item %s outside its turn or twice", item.GetId())
			}
			open[item.GetId()], items[item.GetId()] = true, kindOf(item)
		case *heddlev1.Event_ItemCompleted:
			item := p.ItemCompleted.GetItem()
			if !open[item.GetId()] || item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS {
				r.t.Errorf("item %s ends without a start or a status", item.GetId())
			}
			delete(open, item.GetId())
		case *heddlev1.Event_ApprovalRequested:
			d := []heddlev1.Decision{1, 2, 4, 5, 6}[rng.IntN(5)]
			_, _ = r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{ThreadId: id, ApprovalId: p.ApprovalRequested.GetApproval().GetId(), Decision: d})
		case *heddlev1.Event_TurnCompleted:
			if ev.GetTurnId() != turn {
				r.t.Errorf("end of %s in %s", ev.GetTurnId(), turn)
			}
			for item := range open {
				if items[item] != "command" || p.TurnCompleted.GetTurn().GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
					r.t.Errorf("%s %s is open at the %v end of its turn", items[item], item, p.TurnCompleted.GetTurn().GetStatus())
				}
			}
			turn = ""
			ended++
		}
	}
}
