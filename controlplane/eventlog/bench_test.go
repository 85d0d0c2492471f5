package eventlog_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/eventlog"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// BenchmarkThreads appends from many threads through one committer, each
// waiting for every tenth append.
func BenchmarkThreads(b *testing.B) {
	for _, threads := range []int{1, 50} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			s := openBolt(b, filepath.Join(b.TempDir(), "s.db"))
			l, err := eventlog.Open(b.Context(), eventlog.Config{Store: s})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close(context.Background())
			for i := range threads {
				if _, err := l.Create(b.Context(), &heddlev1.Thread{Id: fmt.Sprint("t", i), Principal: "local"}); err != nil {
					b.Fatal(err)
				}
			}
			before := l.Stats()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range threads {
				wg.Go(func() {
					id := fmt.Sprint("t", i)
					for n := range 1 + b.N/threads {
						p := l.Append(id, 1, warning("an event of about a hundred bytes, which is what most events of a turn have in the log"))
						if n%10 == 9 {
							if err := p.Wait(context.Background()); err != nil {
								b.Error(err)
								return
							}
						} else if p.Err() != nil {
							b.Error(p.Err())
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			after := l.Stats()
			b.ReportMetric(float64(after["events"]-before["events"])/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(after["commits"]-before["commits"])/float64(b.N), "commits/op")
		})
	}
}
