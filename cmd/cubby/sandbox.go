package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/netflag"
)

func newSandbox(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sandbox",
		Aliases: []string{"sandboxes"},
		Short:   "Make, pause, resume, copy and end the sandboxes of a server",
		Long: "Make, pause, resume, copy and end the sandboxes of a server.\n\n" +
			"A sandbox that is paused takes disk, and neither memory nor processor; it goes on\n" +
			"where it was when it is resumed. A snapshot keeps what a sandbox is at a moment:\n" +
			"others are made of it, or the same one is put back to it.\n\n" + serverHelp,
		Example: "  cubby sandbox create --idle-timeout 10m --pause --auto-resume --timeout 24h\n" +
			"  cubby run --sandbox i3xk9 -e 'print(6*7)'\n" +
			"  cubby sandbox pause i3xk9\n" +
			"  cubby sandbox resume i3xk9 --timeout 1h\n" +
			"  cubby sandbox snapshot i3xk9 --name ready:v1\n" +
			"  cubby sandbox create --template ready:v1\n" +
			"  cubby sandbox fork i3xk9 -n 3\n" +
			"  cubby sandbox rollback i3xk9 ready:v1",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list, kill := newList(std), newKill(std)
	kill.Use, kill.Aliases, kill.SuggestFor = "rm ID... | --all", []string{"kill"}, []string{"remove", "delete"}
	kill.Example = "  cubby sandbox rm i3xk9\n  cubby sandbox rm --all --metadata user=ann"
	cmd.AddCommand(newSandboxCreate(std), list, newSandboxPause(std), newSandboxResume(std), newSandboxFork(std),
		newSandboxSnapshot(std), newSandboxSnapshots(std), newSandboxRollback(std), kill)
	return cmd
}

func newSandboxCreate(std stdio) *cobra.Command {
	f := struct {
		serverFlags
		limitFlags
		net                                  netflag.Sandbox
		template                             string
		metadata, env                        []string
		timeout, idle                        timeValue
		pause, filesOnly, autoResume, asJSON bool
	}{limitFlags: defaultLimits(), timeout: timeValue(5 * time.Minute)}
	cmd := &cobra.Command{
		Use:        "create",
		SuggestFor: []string{"new", "start", "make"},
		Short:      "Make a sandbox that stays, and print its id",
		Long: "Make a sandbox, which stays until its time is over or `cubby sandbox rm`, and print\n" +
			"its id. `cubby run --sandbox ID` runs code there.\n\n" +
			"It is made of a template, or of a snapshot with its memory and files. Its time is\n" +
			"over after --timeout, or with --idle-timeout as soon as nothing has run in it, and\n" +
			"no byte has gone to it, for so long. It is ended then, or with --pause paused;\n" +
			"with --auto-resume the next request to it resumes it.\n\n" +
			"It connects to nothing but what --allow names; see `cubby run`.\n\n" + serverHelp,
		Example: "  cubby sandbox create\n" +
			"  cubby sandbox create --template ready:v1 --timeout 1h\n" +
			"  id=$(cubby sandbox create --idle-timeout 10m --pause --auto-resume --timeout 24h)",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed := cmd.Flags().Changed
			if f.filesOnly && !f.pause {
				return usagef("--files-only says how --pause pauses: give both")
			}
			if f.template == "" && changed("template") {
				return usagef("--template: nothing is given")
			}
			if err := f.limitFlags.check(changed); err != nil {
				return err
			}
			labels, err := parsePairs("metadata", f.metadata)
			if err != nil {
				return err
			}
			env, err := parsePairs("env", f.env)
			if err != nil {
				return err
			}
			net, err := f.net.Network(os.Getenv)
			if err != nil {
				return usageError{err}
			}
			opts := []cubby.CreateOption{cubby.WithTimeout(time.Duration(f.timeout)), cubby.WithNetwork(net),
				cubby.WithLimits(f.asked(changed)), cubby.WithMetadata(labels)}
			if len(env) > 0 {
				opts = append(opts, cubby.WithSandboxEnv(env))
			}
			if f.template != "" {
				opts = append(opts, cubby.WithTemplate(f.template))
			}
			if changed("idle-timeout") {
				opts = append(opts, cubby.WithIdleTimeout(time.Duration(f.idle)))
			}
			if f.pause {
				opts = append(opts, cubby.WithAutoPause(pauseOptions(f.filesOnly)...))
			}
			if f.autoResume {
				opts = append(opts, cubby.WithAutoResume())
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			sbx, err := r.Create(cmd.Context(), opts...)
			if err != nil {
				return wrongUse(r.explain(err))
			}
			return printSandboxes(cmd.Context(), std.out, []*cubby.Sandbox{sbx}, f.asJSON)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.template, "template", "", "make it of a `TEMPLATE`, or of a snapshot (default "+cubby.DefaultTemplate+")")
	fl.Var(&f.timeout, "timeout", "how long it lives")
	fl.Var(&f.idle, "idle-timeout", "how long it lives while nothing uses it (Cubby servers only; default for ever)")
	fl.BoolVar(&f.pause, "pause", false, "pause it at its end instead of ending it")
	fl.BoolVar(&f.filesOnly, "files-only", false, "with --pause: keep its files and not its memory")
	fl.BoolVar(&f.autoResume, "auto-resume", false, "resume it, when it is paused, for a request to it")
	fl.StringArrayVarP(&f.metadata, "metadata", "m", nil, "label it, `NAME=VALUE`; repeatable")
	fl.StringArrayVar(&f.env, "env", nil, "set an environment variable in it, `NAME=VALUE`; repeatable")
	f.limitFlags.register(fl)
	f.net.Register(cmd)
	fl.BoolVar(&f.asJSON, "json", false, "print a JSON object instead of the id")
	f.serverFlags.register(cmd)
	return cmd
}

func newSandboxPause(std stdio) *cobra.Command {
	var f serverFlags
	var filesOnly bool
	cmd := &cobra.Command{
		Use:        "pause ID...",
		SuggestFor: []string{"suspend", "stop", "freeze"},
		Short:      "Write sandboxes to the server's disk, where they take no memory",
		Long: "Write the memory and the files of sandboxes to the server's disk, end what runs of\n" +
			"them, and print their ids. `cubby sandbox resume` has all that ran go on. That takes\n" +
			"some seconds for each gigabyte. One that is paused already is no error.\n\n" +
			"With --files-only what runs is over, as after a power cut, and the files are kept.\n\n" + idHelp + "\n\n" + serverHelp + "\n\n" +
			someHelp("paused"),
		Example:           "  cubby sandbox pause i3xk9\n  cubby ls -q --metadata user=ann | xargs -r cubby sandbox pause",
		ValidArgsFunction: f.completeIDs,
		Args:              someIDs("pause"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.each(cmd, std, args, func(r *remote, id string) error {
				sbx, err := r.Get(cmd.Context(), id)
				if err != nil {
					return err
				}
				return sbx.Pause(cmd.Context(), pauseOptions(filesOnly)...)
			})
		},
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "keep the files and not the memory")
	f.register(cmd)
	return cmd
}

func pauseOptions(filesOnly bool) []cubby.PauseOption {
	if filesOnly {
		return []cubby.PauseOption{cubby.WithFilesOnly()}
	}
	return nil
}

func newSandboxResume(std stdio) *cobra.Command {
	var f serverFlags
	var filesOnly bool
	timeout := timeValue(5 * time.Minute)
	cmd := &cobra.Command{
		Use:        "resume ID...",
		Aliases:    []string{"connect"},
		SuggestFor: []string{"unpause", "wake", "start"},
		Short:      "Have paused sandboxes go on",
		Long: "Have paused sandboxes go on where they were, and print their ids. They live for\n" +
			"--timeout from then; one that runs gets at least so much time.\n\n" +
			"Where the memory cannot be restored any more, since the packages of the server's\n" +
			"machine or Cubby's sandbox kernel have changed, the error says so; --files-only\n" +
			"then boots the sandbox anew with its files.\n\n" + idHelp + "\n\n" + serverHelp + "\n\n" +
			someHelp("resumed"),
		Example:           "  cubby sandbox resume i3xk9\n  cubby sandbox resume i3xk9 --timeout 1h --files-only",
		ValidArgsFunction: f.completeIDs,
		Args:              someIDs("resume"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := []cubby.ConnectOption{cubby.WithTimeout(time.Duration(timeout))}
			if filesOnly {
				opts = append(opts, cubby.WithFilesOnly())
			}
			return f.each(cmd, std, args, func(r *remote, id string) error {
				_, err := r.Connect(cmd.Context(), id, opts...)
				return err
			})
		},
	}
	cmd.Flags().Var(&timeout, "timeout", "how long they live from then, at least")
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "boot them anew with their files; their memory is lost")
	f.register(cmd)
	return cmd
}

func newSandboxFork(std stdio) *cobra.Command {
	var f serverFlags
	var asJSON bool
	n := 1
	timeout := timeValue(5 * time.Minute)
	cmd := &cobra.Command{
		Use:        "fork ID",
		SuggestFor: []string{"copy", "clone"},
		Short:      "Copy a sandbox with what runs in it, and print the copies' ids",
		Long: "Copy a sandbox, which runs or is paused, with its memory, files, rules and labels,\n" +
			"and print the copies' ids. It goes on as it was. In the copies what ran goes on,\n" +
			"connections to the outside are reset, and random numbers differ.\n\n" + idHelp + "\n\n" + serverHelp + "\n\n" +
			"Exit status: 1 if fewer copies could be made, whose ids are printed all the same;\n" +
			"125 if the server cannot be asked.",
		Example:           "  cubby sandbox fork i3xk9 -n 3\n  cubby sandbox fork i3xk9 --json | jq -r .id",
		ValidArgsFunction: f.completeID,
		Args:              oneID("fork"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > cubby.MaxForks {
				return usagef("--number: %d is not between 1 and %d", n, cubby.MaxForks)
			}
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			sbx, err := r.find(cmd.Context(), args[0])
			if err != nil {
				return failed(std.err, r.explain(err))
			}
			copies, err := sbx.Fork(cmd.Context(), n, cubby.WithTimeout(time.Duration(timeout)))
			printed := printSandboxes(cmd.Context(), std.out, copies, asJSON)
			if err != nil {
				return failed(std.err, r.explain(err))
			}
			return printed
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&n, "number", "n", 1, fmt.Sprintf("how many copies, at most %d", cubby.MaxForks))
	fl.Var(&timeout, "timeout", "how long they live")
	fl.BoolVar(&asJSON, "json", false, "print a JSON object in a line for each")
	f.register(cmd)
	return cmd
}

func newSandboxRollback(std stdio) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:        "rollback ID SNAPSHOT",
		SuggestFor: []string{"restore", "revert", "reset"},
		Short:      "Put a sandbox back to a snapshot, with its id",
		Long: "Put a sandbox, which runs or is paused, back to a snapshot of your team's, and print\n" +
			"its id. It has the snapshot's memory and files and runs; its id, its rules and the\n" +
			"end of its time stay. What it was before is lost.\n\n" + idHelp + "\n\n" + serverHelp + "\n\n" +
			"Exit status: 1 if it could not be put back; 125 if the server cannot be asked.",
		Example: "  cubby sandbox rollback i3xk9 ready:v1",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return f.completeSnapshots(cmd, nil, start)
			}
			return f.completeID(cmd, args, start)
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("give the ID of a sandbox and a SNAPSHOT: `cubby ls` and `cubby sandbox snapshots` show them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			sbx, err := r.find(cmd.Context(), args[0])
			if err != nil {
				return failed(std.err, r.explain(err))
			}
			if err := sbx.Rollback(cmd.Context(), args[1]); err != nil {
				return failed(std.err, r.explain(snapshotHint(err)))
			}
			_, err = fmt.Fprintln(std.out, sbx.ID())
			return err
		},
	}
	f.register(cmd)
	return cmd
}

const idHelp = "An ID is what `cubby ls` shows, or at least four letters that only one begins with."

func someHelp(done string) string {
	return "Exit status: 1 if some could not be " + done + "; 125 if the server cannot be asked."
}

func someIDs(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("nothing to %s: give the ID of a sandbox (`cubby ls` shows them)", verb)
		}
		return nil
	}
}

func oneID(verb string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%s takes the ID of one sandbox, got %q, too", cmd.CommandPath(), args[1])
		}
		return someIDs(verb)(cmd, args)
	}
}

// completeID is completeIDs for a command about one sandbox.
func (f *serverFlags) completeID(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.completeIDs(cmd, args, start)
}

// each calls do for the sandboxes of these ids and prints those for which it went well.
func (f *serverFlags) each(cmd *cobra.Command, std stdio, ids []string, do func(r *remote, id string) error) error {
	r, err := f.open(cmd)
	if err != nil {
		return err
	}
	k := killer{std: std, remote: r}
	for _, id := range ids {
		id, err := r.withID(cmd.Context(), id, func(id string) error { return do(r, id) })
		if err := k.done(id, err); err != nil {
			return err
		}
	}
	return k.end()
}

// find returns the sandbox that text means.
func (r *remote) find(ctx context.Context, text string) (sbx *cubby.Sandbox, err error) {
	_, err = r.withID(ctx, text, func(id string) (err error) {
		sbx, err = r.Get(ctx, id)
		return err
	})
	return sbx, err
}

// failed tells an error that is about what was asked for, with the status for that; one
// that says that the server cannot be asked is returned as it is.
func failed(w io.Writer, err error) error {
	if cannotAsk(err) {
		return err
	}
	report(w, err)
	return status(exitFailed)
}

// cannotAsk reports whether an error says that a server cannot be asked at all.
func cannotAsk(err error) bool {
	switch cubby.CodeOf(err) {
	case cubby.CodeUnauthenticated, cubby.CodeUnavailable, cubby.CodeCanceled, cubby.CodeTimeout:
		return true
	}
	return false
}

// snapshotHint says where the snapshots are, in an error that one is not there.
func snapshotHint(err error) error {
	e, ok := errors.AsType[*cubby.Error](err)
	if !ok || e.Code != cubby.CodeNotFound || e.Hint != "" {
		return err
	}
	told := *e
	told.Hint = "`cubby sandbox snapshots` shows those that there are"
	return &told
}

// printSandboxes prints the ids of sandboxes, or what `cubby ls --json` says of them.
func printSandboxes(ctx context.Context, w io.Writer, all []*cubby.Sandbox, asJSON bool) error {
	for _, sbx := range all {
		var err error
		if asJSON {
			var info *cubby.Info
			if info, err = sbx.Info(ctx); err == nil {
				err = listJSON(w, []cubby.Info{*info})
			}
		} else {
			_, err = fmt.Fprintln(w, sbx.ID())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
