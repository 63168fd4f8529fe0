package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

func newLogs(std stdio) *cobra.Command {
	var f serverFlags
	var follow, asJSON, network bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show what a server did with a sandbox",
		Long: "Show what a server did with a sandbox, and when and why it ended; not what code in\n" +
			"it printed. An ID is what `cubby ls` shows, or at least four letters that only\n" +
			"one begins with. Of a sandbox that has ended the server knows all for some time,\n" +
			"and for thirty days its beginning and its end; it is named by its whole id.\n" +
			"-f goes on until it has ended, also where the server starts again meanwhile.\n" +
			"--network shows what code in it wanted to connect to, what became of that, and\n" +
			"what --allow would open; it is known as long as the sandbox lives.\n\n" +
			serverHelp + "\n\n" +
			"Exit status: 1 if there is no such sandbox; 125 if the server cannot be asked.",
		Example: "  cubby logs i3xk9\n" +
			"  cubby logs -f i3xk9\n" +
			"  cubby logs --network i3xk9",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return f.completeIDs(cmd, args, start)
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("give the ID of one sandbox: `cubby ls` shows those that live")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			v := logView{remote: r, out: std.out, json: asJSON, network: network,
				pause: followPause, patience: followPatience, shown: map[string]bool{}}
			err = r.explain(v.show(cmd.Context(), args[0], follow))
			switch cubby.CodeOf(err) {
			case cubby.CodeNotFound, cubby.CodeInvalidArgument: // it names none, or several
				report(std.err, err)
				return status(exitFailed)
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&follow, "follow", "f", false, "go on until the sandbox ends")
	fl.BoolVar(&network, "network", false, "show what code wanted to connect to")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object in a line for each")
	f.register(cmd)
	return cmd
}

const (
	// followPause is how long `cubby logs -f` waits before it asks again.
	followPause = time.Second
	// followPatience is for how long it asks a server that does not answer, which may
	// be starting again.
	followPatience = 5 * time.Second
)

// logView prints a log, each line once.
type logView struct {
	remote   *remote
	out      io.Writer
	json     bool
	network  bool // flows, and not the log
	pause    time.Duration
	patience time.Duration

	last  time.Time       // when the newest line that was printed was written
	shown map[string]bool // the lines of that millisecond
}

// show prints the log of the sandbox that text names, and with follow what is
// added to it, until the sandbox has ended.
func (v *logView) show(ctx context.Context, text string, follow bool) error {
	id, err := v.remote.withID(ctx, text, func(id string) error { return v.more(ctx, id) })
	if err != nil || !follow {
		return err
	}
	for answered := time.Now(); ; {
		ended, err := v.added(ctx, id)
		switch {
		case err == nil && !ended:
			answered = time.Now()
		case cubby.CodeOf(err) != cubby.CodeUnavailable:
			return err
		case time.Since(answered) >= v.patience:
			return &cubby.Error{Op: "follow the log", Code: cubby.CodeUnavailable, Err: fmt.Errorf("the server has gone away: %w", err)}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(v.pause):
		}
	}
}

// added prints what there is since the last time, and reports whether the sandbox
// had ended before that: it is all that there will be then.
func (v *logView) added(ctx context.Context, id string) (ended bool, err error) {
	_, err = v.remote.Get(ctx, id)
	ended = cubby.CodeOf(err) == cubby.CodeNotFound
	if err != nil && !ended {
		return false, err
	}
	if ended && v.network {
		return true, nil // its flows are known as long as it lives
	}
	return ended, v.more(ctx, id)
}

// more prints what there is since the last time.
func (v *logView) more(ctx context.Context, id string) error {
	if v.network {
		return v.moreFlows(ctx, id)
	}
	for {
		log, err := v.remote.Logs(ctx, id, v.last)
		if err != nil {
			return err
		}
		fresh := false
		for _, e := range log {
			// A server knows times of milliseconds, and sends those of the last one
			// again.
			at := e.At.Truncate(time.Millisecond)
			if at.Before(v.last) {
				continue
			}
			line, err := v.line(e)
			if err != nil {
				return err
			}
			if at.After(v.last) {
				v.last, v.shown = at, map[string]bool{}
			}
			if v.shown[line] {
				continue
			}
			v.shown[line], fresh = true, true
			if _, err := io.WriteString(v.out, line); err != nil {
				return err
			}
		}
		if !fresh { // a page may not have been all
			return nil
		}
	}
}

// moreFlows prints what there is since the last time. A flow is told when it was decided,
// which may be after others that began later.
func (v *logView) moreFlows(ctx context.Context, id string) error {
	flows, err := v.remote.Flows(ctx, id)
	if err != nil {
		return err
	}
	log := make([]cubby.LogEntry, 0, len(flows))
	for _, f := range flows {
		log = append(log, flowEntry(f))
	}
	slices.SortStableFunc(log, func(a, b cubby.LogEntry) int { return a.At.Compare(b.At) })
	known := map[string]bool{}
	for _, e := range log {
		line, err := v.line(e)
		if err != nil {
			return err
		}
		key := line
		for n := 2; known[key]; n++ { // several at the same moment
			key = line + strconv.Itoa(n)
		}
		known[key] = true
		if v.shown[key] {
			continue
		}
		if _, err := io.WriteString(v.out, line); err != nil {
			return err
		}
	}
	v.shown = known
	return nil
}

// flowEntry is a flow as a line of a log.
func flowEntry(f cubby.Flow) cubby.LogEntry {
	e := cubby.LogEntry{At: f.At, Level: "info", Message: "allowed", Fields: map[string]string{"to": f.Proto + " " + f.Addr}}
	add := func(name, value string) {
		if value != "" {
			e.Fields[name] = value
		}
	}
	add("host", f.Host)
	add("rule", f.Rule)
	add("reason", f.Reason)
	switch {
	case !f.Allowed:
		e.Level, e.Message = "warn", "refused"
		add("allow", f.Allow)
	case !f.EndedAt.IsZero():
		e.At, e.Message = f.EndedAt, "ended"
		e.Fields["sent"], e.Fields["received"] = strconv.FormatInt(f.Sent, 10), strconv.FormatInt(f.Received, 10)
		e.Fields["took"] = f.EndedAt.Sub(f.At).Round(time.Millisecond).String()
	}
	return e
}

// line is an entry as it is printed. A text stays in its line and its column,
// whatever is in it.
func (v *logView) line(e cubby.LogEntry) (string, error) {
	var b strings.Builder
	if v.json {
		enc := json.NewEncoder(terminal.Sanitize(&b, terminal.Is(v.out)))
		enc.SetEscapeHTML(false)
		err := enc.Encode(struct {
			Time    time.Time         `json:"time"`
			Level   string            `json:"level"`
			Message string            `json:"message"`
			Fields  map[string]string `json:"fields,omitempty"`
		}{e.At, e.Level, e.Message, e.Fields})
		return b.String(), err
	}
	fmt.Fprintf(&b, "%s  %-5s  %s", e.At.Local().Format("2006-01-02 15:04:05.000"), oneLine(e.Level), oneLine(e.Message))
	for i, name := range slices.Sorted(maps.Keys(e.Fields)) {
		if i == 0 {
			b.WriteString(" ")
		}
		value := e.Fields[name]
		if value == "" || strings.ContainsAny(value, ` "`) {
			value = strconv.QuoteToGraphic(value)
		}
		fmt.Fprintf(&b, " %s=%s", label(name, " ="), oneLine(value))
	}
	b.WriteString("\n")
	return b.String(), nil
}

// oneLine writes out what a terminal would obey, or would not show.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsGraphic(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if strconv.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
	}
	return b.String()
}
