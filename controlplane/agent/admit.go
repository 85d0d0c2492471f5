package agent

import (
	"strings"

	"github.com/heddle-dev/heddle/controlplane/hook"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// admit shows an input, unless hooks refuse it; it reports whether it was shown.
func (t *turn) admit(in *heddlev1.UserMessage) (bool, error) {
	if len(in.GetParts()) == 0 || t.private {
		t.takeInput(in)
		return true, nil
	}
	if events := t.tellSurroundings(); len(events) > 0 {
		t.record(events...)
	}
	contexts, ok, err := t.startSession()
	if err != nil {
		return false, err
	}
	var after []*heddlev1.HistoryEntry
	if hooks := t.hooksFor(hook.UserPromptSubmit); ok && len(hooks) > 0 {
		input := t.hookInput(hook.UserPromptSubmit)
		said := clipHookInput(saidIn(in))
		input.Prompt, input.Subject = &said, promptSubject(in)
		runs, err := t.runHooks(t.ctx, hooks, input)
		if err != nil {
			return false, err
		}
		after = hookContexts(runs)
		_, refused := hookRefusal(runs)
		ok = !refused
	}
	if len(contexts) > 0 {
		t.record(t.remember(contexts...))
	}
	if ok {
		t.takeInput(in)
	}
	if len(after) > 0 {
		t.record(t.remember(after...))
	}
	return ok, nil
}

// admitAll is admit for inputs that waited; it reports whether one was shown.
func (t *turn) admitAll(inputs []*heddlev1.UserMessage) (bool, error) {
	some := false
	for i, in := range inputs {
		ok, err := t.admit(in)
		if err != nil {
			t.putBack(inputs[i:])
			return some, err
		}
		some = some || ok
	}
	return some, nil
}

// putBack returns inputs that were taken and not shown.
func (t *turn) putBack(inputs []*heddlev1.UserMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs = append(inputs[:len(inputs):len(inputs)], t.inputs...)
}

// saidIn is the text of an input.
func saidIn(in *heddlev1.UserMessage) string {
	var parts []string
	for _, p := range in.GetParts() {
		if s := p.GetText(); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "\n")
}

// startSession runs the hooks of a session's start before the first input that
// this control plane shows in the thread. Hooks that stop it refuse the input.
func (t *turn) startSession() (contexts []*heddlev1.HistoryEntry, ok bool, err error) {
	t.lt.mu.Lock()
	begun := t.lt.sessionBegun
	t.lt.sessionBegun = true
	t.lt.mu.Unlock()
	// A turn that is continued began its session before the restart, unless it had
	// not come that far.
	if begun || t.resume != nil && t.resume.first == nil {
		return nil, true, nil
	}
	in := t.hookInput(hook.SessionStart)
	in.Source = "startup"
	t.lt.mu.Lock()
	if t.lt.loaded != nil {
		in.Source = "resume"
	}
	t.lt.mu.Unlock()
	hooks := t.hooksFor(hook.SessionStart, in.Source)
	if len(hooks) == 0 {
		return nil, true, nil
	}
	// One that was refused or cut off has not begun: the next input asks again.
	defer func() {
		t.lt.mu.Lock()
		defer t.lt.mu.Unlock()
		t.lt.sessionBegun = ok
	}()
	runs, err := t.runHooks(t.ctx, hooks, in)
	if err != nil {
		return nil, false, err
	}
	_, refused := hookRefusal(runs)
	return hookContexts(runs), !refused, nil
}
