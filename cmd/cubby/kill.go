package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

func newKill(std stdio) *cobra.Command {
	var f serverFlags
	var metadata []string
	var all, yes bool
	cmd := &cobra.Command{
		Use:        "kill ID... | --all",
		SuggestFor: []string{"rm", "stop"},
		Short:      "End sandboxes of a server",
		Long: "End sandboxes of a server, with everything in them, and print their ids. An ID is\n" +
			"what `cubby ls` shows, or at least four letters that only one begins with. One\n" +
			"that is not there is an error, and the others end.\n\n" +
			"--all ends every sandbox of your team, also those that others have made; where\n" +
			"standard input is a terminal it says how many, and asks, unless -y says yes.\n\n" + serverHelp + "\n\n" +
			"Exit status: 1 if some could not be ended; 125 if the server cannot be asked.",
		Example: "  cubby kill i3xk9\n" +
			"  cubby kill --all --metadata user=ann\n" +
			"  cubby ls -q | xargs -r cubby kill",
		ValidArgsFunction: f.completeIDs,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef("both --all and %q: give one of them", args[0])
			case !all && len(args) == 0:
				return usagef("nothing to %s: give the ID of a sandbox (`cubby ls` shows them), or --all", cmd.Name())
			case !all && len(metadata) > 0:
				return usagef("--metadata chooses among --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			labels, err := parsePairs("metadata", metadata)
			if err != nil {
				return err
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			k := killer{std: std, remote: r}
			if all {
				return k.all(cmd.Context(), labels, yes)
			}
			return k.each(cmd.Context(), args)
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&all, "all", "a", false, "end all sandboxes of the team")
	fl.StringArrayVarP(&metadata, "metadata", "m", nil, "with --all: those with this label, `NAME=VALUE`; repeatable")
	fl.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.register(cmd)
	return cmd
}

// killer is one `cubby kill`.
type killer struct {
	std    stdio
	remote *remote
	killed int
	failed bool
}

// each ends the sandboxes of these ids.
func (k *killer) each(ctx context.Context, ids []string) error {
	for _, id := range ids {
		id, err := k.remote.withID(ctx, id, func(id string) error { return k.remote.Kill(ctx, id) })
		if err := k.done(id, err); err != nil {
			return err
		}
	}
	return k.end()
}

// all ends every sandbox of the team that has these labels.
func (k *killer) all(ctx context.Context, labels map[string]string, yes bool) error {
	var ids []string
	for info, err := range k.remote.List(ctx, cubby.ListOptions{Metadata: labels}) {
		if err != nil {
			return k.remote.explain(err)
		}
		ids = append(ids, info.ID)
	}
	if len(ids) == 0 {
		fmt.Fprintf(k.std.err, "no sandboxes at %v\n", k.remote.at)
		return nil
	}
	if !yes {
		agreed, err := k.agreed(fmt.Sprintf("End %s at %v?", sandboxes(len(ids)), k.remote.at))
		if err != nil {
			return err
		}
		if !agreed {
			fmt.Fprintln(k.std.err, "nothing was ended")
			return nil
		}
	}
	for _, id := range ids {
		err := k.remote.Kill(ctx, id)
		if cubby.CodeOf(err) == cubby.CodeNotFound {
			continue // it has ended meanwhile
		}
		if err := k.done(id, err); err != nil {
			return err
		}
	}
	fmt.Fprintf(k.std.err, "%s ended\n", sandboxes(k.killed))
	return k.end()
}

// agreed asks whoever sits at the terminal that is standard input, on a stream that
// is shown there; where nobody sits, the command line has said it all.
func (k *killer) agreed(question string) (bool, error) {
	in, ok := k.std.in.(*os.File)
	if !ok || !terminal.Is(in) {
		return true, nil
	}
	shown := k.std.err
	if !terminal.Is(shown) {
		shown = k.std.out
	}
	if !terminal.Is(shown) {
		return false, usagef("%s Neither standard output nor standard error is a terminal to ask on: give --yes (-y)", question)
	}
	fmt.Fprint(shown, question+" [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n') // no answer is none
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// done says what became of a sandbox. It returns the errors with which no other
// one can be ended, either.
func (k *killer) done(id string, err error) error {
	switch {
	case err == nil:
		k.killed++
		// Whether or not somebody reads this, the others are to end. Standard output
		// remembers what it lost.
		fmt.Fprintln(k.std.out, id)
		return nil
	case cannotAsk(err):
		return k.remote.explain(err)
	}
	k.failed = true
	report(k.std.err, k.remote.explain(err))
	return nil
}

func (k *killer) end() error {
	if k.failed {
		return status(exitFailed)
	}
	return nil
}

func sandboxes(n int) string {
	if n == 1 {
		return "1 sandbox"
	}
	return fmt.Sprintf("%d sandboxes", n)
}
