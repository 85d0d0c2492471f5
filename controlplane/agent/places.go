package agent

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// placesWait bounds asking an executor where folders lead. It is longer than the
// dispatcher waits for one to come, which knows why there is none.
const placesWait = 15 * time.Second

// placesBound is ctx with that bound. What ends by it was not done for want of an
// executor, and is told as such.
func placesBound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, placesWait,
		errdefs.New(errdefs.NoExecutor, "no executor said within %s where the folders of the thread lead", placesWait))
}

// folders are what a policy builds its sandbox on.
func folders(workspace string, policy *heddlev1.SandboxPolicy) []string {
	var out []string
	for _, path := range append([]string{workspace}, policy.GetWritableRoots()...) {
		if path != "" {
			out = append(out, path)
		}
	}
	return out
}

// placesOf returns what is recorded of the folders.
func placesOf(all []*heddlev1.Place, paths []string) []*heddlev1.Place {
	var out []*heddlev1.Place
	for _, p := range all {
		for _, path := range paths {
			if p.GetPath() == path {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// pin gives an action where its folders led when the thread was given them. Folders that are not known yet are
// recorded first, durably.
func (lt *live) pin(ctx context.Context, action *executorv1.Action) error {
	if action.GetInspect() != nil {
		return nil // it only reads, and is what asks
	}
	var err error
	action.Places, err = lt.placesFor(ctx, action.GetWorkspace(), action.GetPolicy())
	return err
}

func (lt *live) placesFor(ctx context.Context, workspace string, policy *heddlev1.SandboxPolicy) ([]*heddlev1.Place, error) {
	paths := folders(workspace, policy)
	if err := lt.learnPlaces(ctx, paths); err != nil {
		return nil, err
	}
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return placesOf(lt.places, paths), nil
}

// learnPlaces records where folders lead that the thread was just given.
func (lt *live) learnPlaces(ctx context.Context, paths []string) error {
	lt.placing.Lock()
	defer lt.placing.Unlock()
	unknown := lt.unplaced(paths)
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := placesBound(ctx)
	defer cancel()
	s := lt.currentSettings()
	res, err := lt.act(ctx, &executorv1.Action{
		Policy: proto.CloneOf(s.GetSandbox()), Workspace: s.GetCwd(),
		Kind: &executorv1.Action_Inspect{Inspect: &executorv1.Inspect{Cwd: s.GetCwd(), Places: unknown, PlacesOnly: true}},
	})
	if err != nil {
		return err
	}
	if why := res.GetError(); why != nil {
		return &inspectError{why}
	}
	return lt.notePlaces(ctx, unknown, res.GetInspection().GetPlaces())
}

// unplaced returns the folders of which nothing is recorded.
func (lt *live) unplaced(paths []string) []string {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	var out []string
	for _, path := range paths {
		if !lt.placed[path] {
			out = append(out, path)
		}
	}
	return out
}

// notePlaces records what an executor said of folders. What is known of one stays as it is.
func (lt *live) notePlaces(ctx context.Context, asked []string, found []*heddlev1.Place) error {
	lt.mu.Lock()
	var fresh []*heddlev1.Place
	for _, p := range found {
		// One of which nothing could be said is not pinned yet.
		if !lt.placed[p.GetPath()] || len(placesOf(lt.places, []string{p.GetPath()})) == 0 {
			fresh = append(fresh, p)
		}
	}
	lt.mu.Unlock()
	if len(fresh) > 0 {
		if err := lt.persist(ctx, &heddlev1.Event{Payload: &heddlev1.Event_PlacesSeen{PlacesSeen: &heddlev1.PlacesSeen{Places: fresh}}}); err != nil {
			return err
		}
	}
	lt.mu.Lock()
	defer lt.mu.Unlock()
	lt.places = append(lt.places, fresh...)
	for _, path := range asked {
		lt.placed[path] = true // also when nothing could be said of it
	}
	return nil
}

// knowPlaces takes over what the thread's row says.
func (lt *live) knowPlaces(list []*heddlev1.Place) {
	lt.places, lt.placed = list, map[string]bool{}
	for _, p := range list {
		lt.placed[p.GetPath()] = true
	}
}
