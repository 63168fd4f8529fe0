package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/agentcmd"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// Exit statuses of the command. Every other one is the status of the code that
// ran.
const (
	exitOK          = 0
	exitFailed      = 1                       // uncaught error in the code; a doctor that found something
	exitUsage       = 2                       // wrong use
	exitLost        = output.StatusLost       // the code ended well, but something that it printed or made is lost
	exitTimeout     = 124                     // the code's time was over
	exitCannotRun   = 125                     // Cubby could not run it at all
	exitInterrupted = 130                     // Ctrl-C
	exitOutOfMemory = 137                     // the code's memory was over
	exitBrokenPipe  = output.StatusBrokenPipe // nobody reads standard output any more
)

// stdio are the standard streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// status ends the command with an exit status, silently: what there was to say
// has been said.
type status = output.Exit

// usageError is wrong use of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is the whole program: it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	program := newEngineProgram()
	code := execute(ctx, args, stdio{stdin, stdout, stderr}, openEmbedded(program), program)
	if code == exitBrokenPipe {
		output.DieOfPipe()
	}
	return code
}

func execute(ctx context.Context, args []string, std stdio, open opener, program engineProgram) int {
	// Standard error stays as it is: processes inherit it.
	out := output.New("standard output", std.out)
	out.OnLoss(output.Tell(std.err, "cubby"))
	std.out = out
	root := newRoot(std, open, program)
	root.SetArgs(args)
	return output.Status(report(std.err, root.ExecuteContext(ctx)), out)
}

// newRoot builds the command tree; nothing in it is shared between two calls.
func newRoot(std stdio, open opener, program engineProgram) *cobra.Command {
	root := &cobra.Command{
		Use:   "cubby",
		Short: "Run code in a sandbox that needs nothing but a Linux kernel",
		Long: "Cubby runs code that you did not write, in a sandbox with a kernel of its own.\n" +
			"It needs no Docker, no KVM and no root.",
		Example: "  cubby run -e 'print(6*7)'\n" +
			"  cubby run -f data.csv -o out analysis.py\n" +
			"  cubby doctor",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = version.Version
	root.SetVersionTemplate(versionText(program))
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(std, open), newDoctor(std, open, program), newVersion(std, program),
		newEngine(std, program), newServe(std, program),
		newKeys(std, program.Keys()), agentcmd.New(agentcmd.Streams{In: std.in, Out: std.out, Err: std.err}),
		newSandbox(std), newList(std), newKill(std), newLogs(std), newSecrets(std), newDiskUsage(std), newPrune(std))
	return root
}

// flagError names the command that is not there before the flags that it would have.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return noArgs(cmd, cmd.Flags().Args())
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		if near := similarFlags(cmd, unknown.GetSpecifiedName()); len(near) > 0 {
			err = fmt.Errorf("%w\ndid you mean %s?", err, strings.Join(near, " or "))
		}
	}
	// Which function of Go read a value says nothing to who wrote it.
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if why := value.Unwrap(); why != nil && strings.HasPrefix(why.Error(), "time: ") {
			err = fmt.Errorf("--%s: %q is no time: write it with its unit, as 30s, 10m or 1h", value.GetFlag().Name, value.GetValue())
		}
		if number, ok := errors.AsType[*strconv.NumError](err); ok {
			why := "not a number"
			switch {
			case errors.Is(number, strconv.ErrRange):
				why = "out of range"
			case number.Func == "ParseBool":
				why = "neither true nor false"
			case number.Func != "ParseFloat":
				why = "not a whole number"
			}
			err = fmt.Errorf("--%s: %q is %s", value.GetFlag().Name, value.GetValue(), why)
		}
	}
	return usagef("%w\nsee %q", err, cmd.CommandPath()+" --help")
}

// similarFlags returns the flags that begin with a name, or that it may be a slip of.
func similarFlags(cmd *cobra.Command, name string) []string {
	// Cobra knows what is similar to a command.
	flags := cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	near := flags.SuggestionsFor(name)
	for i := range near {
		near[i] = "--" + near[i]
	}
	return near
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		guess := ""
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			guess = "\ndid you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef("unknown command %q%s\nsee %q", args[0], guess, cmd.CommandPath()+" --help")
	}
	return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
}

// report says what went wrong and returns the exit status for it.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	code, message, hint := describe(err)
	if _, ok := errors.AsType[status](err); ok || code == exitLost {
		return code // told already, and nothing else went wrong
	}
	// The text may quote the sandbox.
	w = terminal.Sanitize(w, terminal.Is(w))
	fmt.Fprintf(w, "cubby: %s\n", message)
	if hint != "" && !strings.Contains(message, hint) {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return code
}

// describe returns the exit status for an error, and what to say of it.
func describe(err error) (code int, message, hint string) {
	code, message = exitCannotRun, err.Error()
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		hint = e.Hint
		message = e.Err.Error()
		if e.Op != "" {
			message = e.Op + ": " + message
		}
		if e.Code == cubby.CodeTimeout {
			code = exitTimeout
		}
	}
	if _, ok := errors.AsType[usageError](err); ok {
		code = exitUsage
	}
	if s, ok := errors.AsType[status](err); ok {
		code = int(s)
	}
	if _, ok := err.(*output.Error); ok {
		code = exitLost
	}
	return code, strings.TrimSpace(message), hint
}
