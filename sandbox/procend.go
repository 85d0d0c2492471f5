package sandbox

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// diskInterval is how often the free space is looked at while a command runs.
const diskInterval = 100 * time.Millisecond

// follow waits for the end of the main process, ends what it left behind, and publishes the result.
func (p *Proc) follow(timeout time.Duration) {
	defer p.b.release()
	defer close(p.done)
	p.await(timeout)
	p.result.Duration = time.Since(p.started)
	p.b.unregister(p.id)
	p.clear()
	p.proxy.close()
	p.result.OOMKilled, p.result.PidsHit = p.b.limits.hits(p.before)
	p.result.DiskLow = p.diskLow.Load()
	p.result.TimedOut, p.result.Killed = p.timedOut.Load(), p.killed.Load()
	p.result.Violations = p.violations()
}

// await waits for the end of the main process, which it ends itself when its time or the disk's space is up.
func (p *Proc) await(timeout time.Duration) {
	var alarm <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(time.Until(p.started.Add(timeout)))
		defer t.Stop()
		alarm = t.C
	}
	var look <-chan time.Time
	disk := p.b.watchDisk()
	if disk != nil {
		t := time.NewTicker(diskInterval)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-look:
			if disk.reached() {
				p.diskLow.Store(true)
				look = nil
				_ = p.end()
			}
		case x := <-p.exit:
			p.take(x)
			return
		case <-alarm:
			p.timedOut.Store(true)
			_ = p.end()
		case <-p.b.lost:
			select {
			case x := <-p.exit: // told before the end
				p.take(x)
			default:
				p.result.SandboxLost, p.result.ExitCode, p.result.Signal = true, 128+int(unix.SIGKILL), int(unix.SIGKILL)
			}
			return
		}
	}
}

// clear returns when nothing of the command is left.
func (p *Proc) clear() {
	switch {
	case p.b.isLost():
		<-p.b.clean // everything in it is gone then
		if p.leaf != nil {
			p.leaf.forget()
		}
	case p.leaf != nil:
		killed, err := p.b.leaves.finish(p.leaf, p.grace())
		p.result.Leftovers = killed
		if err != nil {
			p.s.m.log.Error("end of a command", "err", err)
		}
	}
}

// violations are what the command was refused, what it planted and what was found since the last one.
func (p *Proc) violations() []Violation {
	var out []Violation
	p.b.mu.Lock()
	for _, path := range p.denied {
		if strings.HasPrefix(path, "\x00") {
			if path = shownName(path); !boundOnHost(path) {
				continue // a name that nobody has
			}
		}
		out = append(out, Violation{Path: path, What: "connecting to this socket of the host was refused"})
	}
	p.b.mu.Unlock()
	p.s.mu.Lock()
	out = append(append(out, p.s.pending...), p.s.audit(p.b)...)
	p.s.pending = nil
	p.s.mu.Unlock()
	if p.scan != nil {
		out = append(out, p.scan.end(p.result.Duration)...)
	}
	return boundViolations(out)
}

// grace is how long what a command left may take to end by itself.
func (p *Proc) grace() time.Duration {
	if p.timedOut.Load() || p.killed.Load() || p.diskLow.Load() {
		return 0
	}
	return p.s.m.cfg.DrainGrace
}

// take notes how the main process ended.
func (p *Proc) take(x guestproto.Exit) {
	ws := syscall.WaitStatus(x.Status)
	if ws.Signaled() {
		p.result.Signal = int(ws.Signal())
		p.result.ExitCode = 128 + p.result.Signal
	} else {
		p.result.ExitCode = ws.ExitStatus()
	}
	p.result.Leftovers = x.Leftovers
	p.result.UserTime = time.Duration(x.UserUS) * time.Microsecond
	p.result.SystemTime = time.Duration(x.SystemUS) * time.Microsecond
}
