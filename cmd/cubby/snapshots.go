package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

func newSandboxSnapshot(std stdio) *cobra.Command {
	var f serverFlags
	var name string
	var filesOnly, asJSON bool
	cmd := &cobra.Command{
		Use:   "snapshot ID",
		Short: "Keep what a sandbox is now, and print the snapshot's id",
		Long: "Keep the memory and the files of a sandbox as they are now, or its files alone, and\n" +
			"print the snapshot's id. The sandbox goes on. `cubby sandbox create --template` makes\n" +
			"others of the snapshot, `cubby sandbox rollback` puts one back to it, `cubby sandbox\n" +
			"snapshots` lists those that there are, and its rm deletes them.\n\n" +
			"A name that another snapshot of your team has is this one's from then on.\n\n" + idHelp + "\n\n" + serverHelp + "\n\n" +
			"Exit status: 1 if there is none; 125 if the server cannot be asked.",
		Example:           "  cubby sandbox snapshot i3xk9\n  cubby sandbox snapshot i3xk9 --name ready:v1",
		ValidArgsFunction: f.completeID,
		Args:              oneID("keep"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opts []cubby.SnapshotOption
			switch {
			case name != "":
				opts = append(opts, cubby.WithName(name))
			case cmd.Flags().Changed("name"):
				return usagef("--name: nothing is given")
			}
			if filesOnly {
				opts = append(opts, cubby.WithFilesOnly())
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			sbx, err := r.find(cmd.Context(), args[0])
			if err != nil {
				return failed(std.err, r.explain(err))
			}
			made, err := sbx.Snapshot(cmd.Context(), opts...)
			if err != nil {
				return failed(std.err, r.explain(err))
			}
			if asJSON {
				return snapshotsJSON(std.out, []cubby.Snapshot{made})
			}
			_, err = fmt.Fprintln(std.out, made.ID)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&name, "name", "", "call it `NAME[:TAG]`: lower-case letters, digits, - and _")
	fl.BoolVar(&filesOnly, "files-only", false, "keep the files and not the memory (Cubby servers only)")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object instead of the id")
	f.register(cmd)
	return cmd
}

func newSandboxSnapshots(std stdio) *cobra.Command {
	var f serverFlags
	var of, name string
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:   "snapshots",
		Short: "List snapshots, or delete them",
		Long: "List the snapshots of your team, newest first: what they take of the server's disk,\n" +
			"how old they are, whether they are of files only, and which sandbox they were made of.\n\n" + serverHelp,
		Example: "  cubby sandbox snapshots\n" +
			"  cubby sandbox snapshots --name ready\n" +
			"  cubby sandbox snapshots rm ready:v1\n" +
			"  cubby sandbox snapshots -q | xargs -r cubby sandbox snapshots rm",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quiet && asJSON {
				return usagef("both --quiet and --json: give one of them")
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			var all []cubby.Snapshot
			for one, err := range r.Snapshots(cmd.Context(), cubby.SnapshotListOptions{SandboxID: of, Name: name}) {
				if err != nil {
					return r.explain(err)
				}
				all = append(all, one)
			}
			switch {
			case asJSON:
				return snapshotsJSON(std.out, all)
			case quiet:
				for _, one := range all {
					if _, err := fmt.Fprintln(std.out, one.ID); err != nil {
						return err
					}
				}
				return nil
			case len(all) == 0:
				fmt.Fprintf(std.err, "no snapshots at %v\n", r.at)
				return nil
			}
			return writeSnapshots(std.out, all, time.Now())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&of, "sandbox", "", "list those of the sandbox `ID`, also of one that has ended")
	fl.StringVar(&name, "name", "", "list those of a `NAME`, with any tag, or of NAME:TAG")
	fl.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object in a line for each")
	f.register(cmd)
	cmd.AddCommand(newSnapshotsRemove(std))
	return cmd
}

func newSnapshotsRemove(std stdio) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:        "rm SNAPSHOT...",
		Aliases:    []string{"remove"},
		SuggestFor: []string{"delete", "prune"},
		Short:      "Delete snapshots",
		Long: "Delete snapshots and print their ids. Sandboxes that were made of them go on. One\n" +
			"that is not there is an error, and the others are deleted.\n\n" + serverHelp + "\n\n" + someHelp("deleted"),
		Example:           "  cubby sandbox snapshots rm ready:v1",
		ValidArgsFunction: f.completeSnapshots,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("nothing to delete: give a SNAPSHOT (`cubby sandbox snapshots` shows them)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			k := killer{std: std, remote: r}
			for _, id := range args {
				if err := k.done(id, snapshotHint(r.DeleteSnapshot(cmd.Context(), id))); err != nil {
					return err
				}
			}
			return k.end()
		},
	}
	f.register(cmd)
	return cmd
}

// completeSnapshots completes the ids of snapshots, those that are not given yet.
func (f *serverFlags) completeSnapshots(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := f.open(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	var all []cobra.Completion
	for one, err := range r.Snapshots(ctx, cubby.SnapshotListOptions{}) {
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if !slices.Contains(args, one.ID) {
			all = append(all, cobra.Completion(one.ID)) // which is printable
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// snapshotsJSON prints a line for each snapshot. What the server does not say is null or
// left out.
func snapshotsJSON(w io.Writer, all []cubby.Snapshot) error {
	enc := json.NewEncoder(terminal.Sanitize(w, terminal.Is(w)))
	enc.SetEscapeHTML(false)
	for _, s := range all {
		if err := enc.Encode(struct {
			ID        string     `json:"id"`
			Names     []string   `json:"names"`
			Sandbox   string     `json:"sandbox,omitempty"`
			FilesOnly bool       `json:"files_only"`
			Size      int64      `json:"size_bytes"`
			CreatedAt *time.Time `json:"created_at"`
		}{s.ID, append([]string{}, s.Names...), s.SandboxID, s.FilesOnly, s.Size, nullable(s.CreatedAt)}); err != nil {
			return err
		}
	}
	return nil
}

func writeSnapshots(w io.Writer, all []cubby.Snapshot, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	fmt.Fprintln(t, "SNAPSHOT\tSIZE\tAGE\tKEEPS\tSANDBOX")
	for _, s := range all {
		old, bytes, keeps := "-", "-", "memory"
		if !s.CreatedAt.IsZero() {
			old = age(now.Sub(s.CreatedAt))
		}
		if s.Size > 0 {
			bytes = size(s.Size)
		}
		if s.FilesOnly {
			keeps = "files"
		}
		fmt.Fprintln(t, strings.Join([]string{s.ID, bytes, old, keeps, cmp.Or(printable(s.SandboxID), "-")}, "\t"))
	}
	return t.Flush()
}
