package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/controlplane"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/proto/errdefs"
)

// shownDamage bounds what is listed for people.
const shownDamage = 50

// addStoreCheck gives doctor its second subject: the home's store.
func addStoreCheck(doctor *cobra.Command) {
	var home string
	var check, repair bool
	host := doctor.RunE
	doctor.Long += `

With --store it reads every record of the home's store instead and names what is
damaged, also while the control plane runs; it exits with 1 when something is.
With --repair it writes what can be read into a new store and puts that in the
place of the damaged one, which is kept beside it. That needs the home for itself.`
	doctor.Flags().StringVar(&home, "home", "", "home `folder` of --store (default $HEDDLE_HOME, else ~/.heddle)")
	doctor.Flags().BoolVar(&check, "store", false, "check the home's store instead of this host")
	doctor.Flags().BoolVar(&repair, "repair", false, "salvage a damaged store into a new file; implies --store")
	doctor.RunE = func(cmd *cobra.Command, args []string) error {
		if !check && !repair {
			return host(cmd, args)
		}
		dir, err := storeHome(home)
		if err != nil {
			return usageError(err)
		}
		asJSON, err := cmd.Flags().GetBool("json")
		if err != nil {
			return err
		}
		if repair {
			return repairStore(cmd.Context(), cmd.OutOrStdout(), dir, asJSON)
		}
		return checkStore(cmd.Context(), cmd.OutOrStdout(), dir, asJSON)
	}
}

// checkStore checks the file, or a copy of it where a control plane has it open.
func checkStore(ctx context.Context, out io.Writer, home string, asJSON bool) error {
	path := controlplane.StoreFile(home)
	report, err := boltstore.Check(ctx, path)
	if errdefs.Is(err, errdefs.Busy) {
		report, err = checkCopy(ctx, home)
	}
	if err != nil {
		return err
	}
	report.Path = path
	if asJSON {
		err = printJSON(out, report)
	} else {
		err = printReport(out, report)
		if err == nil && !report.Sound() {
			_, err = fmt.Fprintln(out, "heddle doctor --repair salvages what can be read; a backup may hold more")
		}
	}
	if err == nil && !report.Sound() {
		err = &exitError{code: exitFailed}
	}
	return err
}

func checkCopy(ctx context.Context, home string) (*boltstore.Report, error) {
	temp, err := os.CreateTemp("", "heddle-check-*.db")
	if err != nil {
		return nil, fmt.Errorf("check a copy of the store: %w", err)
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	if err := copyStore(ctx, home, temp); err != nil {
		return nil, err
	}
	return boltstore.Check(ctx, temp.Name())
}

// repairStore replaces a damaged store by what could be salvaged of it. The
// home's lock is held, so that no control plane starts between.
func repairStore(ctx context.Context, out io.Writer, home string, asJSON bool) error {
	release, err := local.LockHome(ctx, home)
	if err != nil {
		return fmt.Errorf("a repair needs the home for itself: %w", err)
	}
	defer release()
	path := controlplane.StoreFile(home)
	report, err := boltstore.Check(ctx, path)
	if err != nil {
		return fmt.Errorf("%w\nnothing of it can be read: put a backup in its place", err)
	}
	if report.Sound() {
		if asJSON {
			return printJSON(out, map[string]any{"before": report, "repaired": false})
		}
		return printReport(out, report)
	}
	temp := path + ".salvaged"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	result, err := boltstore.Salvage(ctx, path, temp)
	if err != nil {
		return err
	}
	kept, err := setAside(path, time.Now())
	if err != nil {
		return err
	}
	if err := errors.Join(os.Rename(temp, path), syncDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("put the salvaged store in place (it is %s, the damaged one %s): %w", temp, kept, err)
	}
	if asJSON {
		return printJSON(out, map[string]any{"before": result.Before, "after": result.After, "kept": kept, "repaired": true})
	}
	return printRepair(out, result, kept)
}

// setAside gives the damaged store a name of its own. It stays under its old name
// too, until the new one replaces it.
func setAside(path string, now time.Time) (string, error) {
	kept := path + ".damaged-" + now.Format("20060102-150405")
	for n := 2; ; n++ {
		err := os.Link(path, kept)
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, os.ErrExist) || n > 100 {
			return "", fmt.Errorf("keep the damaged store: %w", err)
		}
		kept = fmt.Sprintf("%s.damaged-%s-%d", path, now.Format("20060102-150405"), n)
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func printReport(w io.Writer, r *boltstore.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "store       %s\nschema      %d\nsize        %d bytes, %d threads, %d records\n", r.Path, r.Schema, r.Bytes, r.Threads, r.Records)
	if r.Sound() {
		b.WriteString("damage      none\n")
	} else {
		fmt.Fprintf(&b, "damage      %d\n", len(r.Damage)+r.More)
		writeDamage(&b, r)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeDamage lists damage by thread.
func writeDamage(b *strings.Builder, r *boltstore.Report) {
	last := "-"
	for i, d := range r.Damage {
		if i == shownDamage {
			fmt.Fprintf(b, "and %d more; --json lists them\n", len(r.Damage)+r.More-i)
			return
		}
		if d.ThreadID != last {
			last = d.ThreadID
			name := "thread " + d.ThreadID
			if d.ThreadID == "" {
				name = "the store"
			}
			fmt.Fprintln(b, name)
		}
		fmt.Fprintf(b, "  %s\n", d)
	}
}

func printRepair(w io.Writer, s *boltstore.Salvaged, kept string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "damage      %d\n", len(s.Before.Damage)+s.Before.More)
	writeDamage(&b, s.Before)
	fmt.Fprintf(&b, "repaired    %d threads, %d records are in the new store\nkept        the damaged one is %s\n", s.After.Threads, s.After.Records, kept)
	if s.After.Sound() {
		b.WriteString("lost        nothing\n")
	} else {
		b.WriteString("lost        what follows; readers are shown a gap there\n")
		writeDamage(&b, s.After)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
