package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

func newList(std stdio) *cobra.Command {
	var f serverFlags
	var metadata []string
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the sandboxes of a server",
		Long: "List the sandboxes of a server that are your team's, those that are paused, too,\n" +
			"newest first: since when they are there (AGE) and when the server ends or pauses\n" +
			"those that run (LEFT).\n\n" + serverHelp,
		Example: "  cubby ls\n" +
			"  cubby ls --metadata user=ann\n" +
			"  cubby ls --json | jq -r 'select(.template == \"base\").id'\n" +
			"  cubby ls -q | xargs -r cubby kill",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quiet && asJSON {
				return usagef("both --quiet and --json: give one of them")
			}
			labels, err := parsePairs("metadata", metadata)
			if err != nil {
				return err
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			var all []cubby.Info
			for info, err := range r.List(cmd.Context(), cubby.ListOptions{Metadata: labels}) {
				if err != nil {
					return r.explain(err)
				}
				all = append(all, info)
			}
			switch {
			case asJSON:
				return listJSON(std.out, all)
			case quiet:
				for _, info := range all {
					if _, err := fmt.Fprintln(std.out, info.ID); err != nil {
						return err
					}
				}
				return nil
			case len(all) == 0:
				fmt.Fprintf(std.err, "no sandboxes at %v\n", r.at)
				return nil
			}
			return writeTable(std.out, sandboxRows(all, time.Now()), columns(std.out))
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&metadata, "metadata", "m", nil, "list those with this label, `NAME=VALUE`; repeatable")
	fl.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object in a line for each")
	f.register(cmd)
	return cmd
}

// listJSON prints a line for each sandbox. What the server does not say is null
// or left out.
func listJSON(w io.Writer, all []cubby.Info) error {
	enc := json.NewEncoder(terminal.Sanitize(w, terminal.Is(w)))
	enc.SetEscapeHTML(false)
	for _, info := range all {
		if err := enc.Encode(struct {
			ID        string            `json:"id"`
			Template  string            `json:"template"`
			State     string            `json:"state"`
			StartedAt *time.Time        `json:"started_at"`
			EndAt     *time.Time        `json:"end_at"`
			CPUs      int               `json:"cpus"`
			Memory    int64             `json:"memory_bytes"`
			Disk      int64             `json:"disk_bytes"`
			Metadata  map[string]string `json:"metadata,omitempty"`
		}{info.ID, info.Template, info.State, nullable(info.StartedAt), nullable(info.EndAt), int(info.Limits.CPUs),
			info.Limits.Memory, info.Limits.Disk, info.Metadata}); err != nil {
			return err
		}
	}
	return nil
}

// Columns of the table of sandboxes.
const (
	columnID = iota
	columnTemplate
	columnState
	columnAge
	columnLeft
	columnCPU
	columnMemory
	columnMetadata
)

const (
	columnGap   = 2
	leastColumn = 11 // of those that are cut where the table is too wide: what fits into 80
)

// droppedColumns are those that a table does without where cutting is not enough,
// in this order.
func droppedColumns() []int {
	return []int{columnMetadata, columnCPU, columnMemory, columnTemplate, columnLeft, columnAge}
}

// sandboxRows are the cells of a table of sandboxes; nothing in them is obeyed by
// a terminal.
func sandboxRows(all []cubby.Info, now time.Time) [][]string {
	rows := [][]string{{"ID", "TEMPLATE", "STATE", "AGE", "LEFT", "CPU", "MEM", "METADATA"}}
	for _, info := range all {
		row := []string{info.ID, orDash(printable(info.Template)), orDash(printable(info.State)), "-", "-", "-", "-", orDash(labels(info.Metadata))}
		if !info.StartedAt.IsZero() {
			row[columnAge] = age(now.Sub(info.StartedAt))
		}
		if !info.EndAt.IsZero() && info.State != cubby.StatePaused { // no time passes for that
			row[columnLeft] = age(info.EndAt.Sub(now))
		}
		if info.Limits.CPUs > 0 {
			row[columnCPU] = strconv.Itoa(int(info.Limits.CPUs))
		}
		if info.Limits.Memory > 0 {
			row[columnMemory] = size(info.Limits.Memory)
		}
		rows = append(rows, row)
	}
	return rows
}

// labels is metadata in one line, in the order of its names.
func labels(m map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, label(k, ",= ")+"="+label(m[k], ","))
	}
	return strings.Join(all, ",")
}

// label quotes what would be read as something else.
func label(s, special string) string {
	if strings.ContainsAny(s, special) {
		return strconv.QuoteToGraphic(s)
	}
	return printable(s)
}

// age is a time in at most four characters, as long as it is shorter than three
// years.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// size is an amount of memory in few characters, of powers of 1024.
func size(bytes int64) string {
	if bytes < 1<<30 {
		return strconv.FormatInt((bytes+1<<20-1)>>20, 10) + "M"
	}
	return strings.TrimSuffix(strconv.FormatFloat(float64(bytes)/(1<<30), 'f', 1, 64), ".0") + "G"
}

// columns is how wide a terminal is; 0 where there is none, or it does not say.
func columns(w io.Writer) int {
	f, ok := w.(terminal.File)
	if !ok || !terminal.Is(w) {
		return 0
	}
	cols, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return cols
}

// writeTable aligns the rows of a table of sandboxes. With more than 0 columns,
// metadata and templates are cut, down to leastColumn each, for lines to fit into so
// many, and then columns left out, but for ids and states.
func writeTable(w io.Writer, rows [][]string, columns int) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], cells(cell))
		}
	}
	shown := []int{columnID, columnTemplate, columnState, columnAge, columnLeft, columnCPU, columnMemory, columnMetadata}
	if columns > 0 {
		shown = fit(shown, widths, columns)
	}
	var b strings.Builder
	for _, row := range rows {
		for n, i := range shown {
			cell := shorten(row[i], widths[i])
			b.WriteString(cell)
			if n < len(shown)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-cells(cell)+columnGap))
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fit returns which of the shown columns of these widths have room in so many cells,
// and narrows those that are to be cut.
func fit(shown, widths []int, room int) []int {
	cut := []int{columnMetadata, columnTemplate}
	over := func(width func(i int) int) int {
		n := columnGap*(len(shown)-1) - room
		for _, i := range shown {
			n += width(i)
		}
		return n
	}
	least := func(i int) int {
		if slices.Contains(cut, i) {
			return min(widths[i], leastColumn)
		}
		return widths[i]
	}
	for _, i := range droppedColumns() {
		if over(least) <= 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(other int) bool { return other == i })
	}
	much := over(func(i int) int { return widths[i] })
	for _, i := range cut {
		if give := min(much, widths[i]-leastColumn); give > 0 && slices.Contains(shown, i) {
			widths[i], much = widths[i]-give, much-give
		}
	}
	return shown
}

// shorten cuts a text to n cells of a terminal, with an ellipsis in the last.
func shorten(s string, n int) string {
	if cells(s) <= n {
		return s
	}
	used := 1
	for i, r := range s {
		if used += runeCells(r); used > n {
			return s[:i] + "…"
		}
	}
	return s
}

// cells is how many cells of a terminal a text takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
