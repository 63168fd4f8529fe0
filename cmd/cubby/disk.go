package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
)

func newDiskUsage(std stdio) *cobra.Command {
	var f serverFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "df",
		Short: "Show what paused sandboxes and snapshots take of a server's disk",
		Long: "Show what your team's paused sandboxes and snapshots take of a server's disk and,\n" +
			"where the server has no keys, what all of them take and what is left for more.\n" +
			"Where several share something on the disk it counts for each of them, and once for\n" +
			"all.\n\n" + serverHelp,
		Example:           "  cubby df\n  cubby df --json | jq .snapshots.bytes",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			d, err := r.Disk(cmd.Context())
			if err != nil {
				return r.explain(err)
			}
			if asJSON {
				return diskJSON(std.out, d)
			}
			return writeDisk(std.out, d)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object, with sizes in bytes")
	f.register(cmd)
	return cmd
}

func diskJSON(w io.Writer, d *cubby.Disk) error {
	type held struct {
		Count int   `json:"count"`
		Bytes int64 `json:"bytes"`
	}
	type usage struct {
		Images   int64 `json:"images_bytes"`
		Reserved int64 `json:"reserved_bytes"`
		Damaged  int64 `json:"damaged_bytes"`
		Free     int64 `json:"free_bytes"`
		Budget   int64 `json:"budget_bytes"`
	}
	out := struct {
		Paused    held   `json:"paused"`
		Snapshots held   `json:"snapshots"`
		All       *usage `json:"all,omitempty"`
	}{Paused: held(d.Paused), Snapshots: held(d.Snapshots)}
	if d.All != nil {
		all := usage(*d.All)
		out.All = &all
	}
	return json.NewEncoder(w).Encode(out)
}

func writeDisk(w io.Writer, d *cubby.Disk) error {
	t := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }
	row("WHAT", "COUNT", "SIZE")
	row("paused", strconv.Itoa(d.Paused.Count), size(d.Paused.Bytes))
	row("snapshots", strconv.Itoa(d.Snapshots.Count), size(d.Snapshots.Bytes))
	if all := d.All; all != nil {
		row("all", "-", size(all.Images))
		if all.Reserved > 0 {
			row("being written", "-", size(all.Reserved))
		}
		if all.Damaged > 0 {
			row("damaged", "-", size(all.Damaged))
		}
		row("free", "-", size(all.Free))
		if all.Budget > 0 {
			row("budget", "-", size(all.Budget))
		}
	}
	return t.Flush()
}

func newPrune(std stdio) *cobra.Command {
	var f serverFlags
	var all, yes bool
	var older time.Duration
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove from a server's disk what is not needed",
		Long: "Remove from a server's disk what the server can make again, and with --all your\n" +
			"team's snapshots that have no name, or those of them that are older than\n" +
			"--older-than. Paused sandboxes and named snapshots stay: `cubby sandbox rm` and\n" +
			"`cubby sandbox snapshots rm` remove them.\n\n" +
			"With --all, where standard input is a terminal, it asks, unless -y says yes.\n\n" + serverHelp,
		Example:           "  cubby prune\n  cubby prune --all --older-than 168h",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case older < 0:
				return usagef("--older-than: %v is negative", older)
			case older > 0 && !all:
				return usagef("--older-than chooses among --all")
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			if all && !yes {
				k := killer{std: std, remote: r}
				agreed, err := k.agreed(fmt.Sprintf("Delete the snapshots without a name at %v?", r.at))
				if err != nil {
					return err
				}
				if !agreed {
					fmt.Fprintln(std.err, "nothing was deleted")
					return nil
				}
			}
			went, err := r.Prune(cmd.Context(), cubby.PruneOptions{Snapshots: all, OlderThan: older})
			if err != nil {
				return r.explain(err)
			}
			_, err = fmt.Fprintf(std.out, "removed %d, %s\n", went.Count, size(went.Bytes))
			return err
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&all, "all", "a", false, "delete the team's snapshots that have no name, too")
	fl.DurationVar(&older, "older-than", 0, "with --all: those made so long ago, as 72h")
	fl.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.register(cmd)
	return cmd
}
