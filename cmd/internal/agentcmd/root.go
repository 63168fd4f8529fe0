// Package agentcmd is `cubby agent`: it answers questions with a language model that
// writes code, which runs in a sandbox.
package agentcmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/cmd/internal/flagvalue"
	"github.com/cubby-sandbox/cubby/cmd/internal/netflag"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
	"github.com/cubby-sandbox/cubby/cmd/internal/pkgflag"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// Exit statuses, as cubby's.
const (
	exitOK          = 0
	exitFailed      = 1                       // the work ended without an answer
	exitUsage       = 2                       // wrong use
	exitLost        = output.StatusLost       // there is an answer, but something of it is lost
	exitTimeout     = 124                     // the time was over
	exitCannotRun   = 125                     // no model, or nowhere to run code
	exitInterrupted = 130                     // Ctrl-C
	exitBrokenPipe  = output.StatusBrokenPipe // nobody reads the output any more
)

// Streams are the standard streams. Out tells of its losses itself (see
// [output.Stream]), which of Err the command does.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// usageError is wrong use of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// flags are the command line.
type flags struct {
	files                     []string
	out, model, baseURL       string
	provider, mode, executor  string
	transcript, policy, audit string
	tools, system             string
	python, node              string
	env, skills               []string
	memory                    flagvalue.Size // 0: not given
	maxTurns                  int
	approve, approveGiven     bool
	auditCode, private, goOn  bool
	json                      bool
	timeout                   time.Duration
	net                       netflag.Sandbox
	netGiven                  string // one of its flags that was given
	owner                     netflag.Owner
	ownerGiven                string
	packages                  pkgflag.Flags
	packagesGiven             string
}

// New returns the command. What it fails with is an [output.Exit], which has been
// told, or what cobra finds wrong with the flags.
func New(std Streams) *cobra.Command {
	var f flags
	const name = "cubby agent"
	cmd := &cobra.Command{
		Use:   "agent [QUESTION]",
		Short: "Ask a language model, which answers by writing code that runs in a sandbox",
		Long: "Ask a language model, which answers by writing code. The code runs in a sandbox;\n" +
			"what it prints goes back to the model until it knows the answer.\n" +
			"Without a question, a chat begins. The question - is read from standard input.\n\n" + modelHelp + "\n\n" +
			"Exit status: 0 an answer; 1 none within the bounds; 124 none in time; 130\n" +
			"interrupted; 2 wrong use; 125 no model, or nowhere to run code; 120 an answer,\n" +
			"but it, a file that came back or the transcript could not be written.",
		Example: "  " + name + " -f weather.csv 'Which year was the wettest? Draw a chart.'\n" +
			"  " + name + " --out charts --transcript run.html -f data/ 'What is odd in these files?'\n" +
			"  " + name + " --base-url http://localhost:11434/v1 --model qwen3 'Factor 2^67-1'",
		Version: version.Version,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			errs := output.New("standard error", std.Err)
			err := f.check(cmd.Flags().Changed)
			if err == nil {
				err = newCommand(Streams{std.In, std.Out, errs}, f).run(cmd.Context(), strings.Join(args, " "), len(args) > 0)
			}
			if code := output.Status(report(errs, err), errs); code != exitOK {
				return output.Exit(code)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.files, "file", "f", nil, "file or folder to put into the sandbox (again for more)")
	fl.StringVarP(&f.out, "out", "o", defaultOut, "folder for the files and charts that come back")
	fl.StringVar(&f.model, "model", "", "model (default "+defaultOpenAI+" or "+defaultAnthropic+", by the key that is set)")
	fl.StringVar(&f.baseURL, "base-url", "", "address of the model's endpoint (default $OPENAI_BASE_URL or $ANTHROPIC_BASE_URL)")
	fl.StringVar(&f.provider, "provider", "", "openai (and compatible servers) or anthropic (default by model and key)")
	fl.StringVar(&f.mode, "mode", string(agent.ModeBlocks), "how the model hands code over: blocks (in its replies) or tools")
	fl.IntVar(&f.maxTurns, "max-turns", 20, "replies of the model to one question at most")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Minute, "time for one question")
	fl.BoolVar(&f.approve, "approve", false, "ask before each piece of code runs")
	fl.StringVar(&f.executor, "executor", "", "where code runs: sandbox, container, e2b, unsafe_local (default $CODE_EXECUTOR_TYPE, then sandbox)")
	fl.StringVar(&f.python, "python", "", "python3 of the sandbox (default $CUBBY_PYTHON, then python3 on PATH)")
	fl.StringVar(&f.node, "node", "", "node of the sandbox (default $CUBBY_NODE, then node on PATH)")
	fl.Var(&f.memory, "memory", "memory that code may use, such as 2GiB")
	fl.StringArrayVar(&f.env, "env", nil, "set an environment variable for the code, `NAME=VALUE`; repeatable")
	f.net.Register(cmd)
	f.owner.Register(cmd)
	f.packages.Register(cmd)
	fl.StringArrayVar(&f.skills, "skills", nil, "`FOLDER` of skills (folders with a SKILL.md) that the model may use; repeatable")
	fl.StringVar(&f.system, "system", "", "instructions for the model: `TEXT`, or @FILE")
	fl.StringVar(&f.policy, "policy", "", "look at code before it runs: development, production, strict or a YAML file")
	fl.StringVar(&f.tools, "tools", "", "folder of tools that the model made, to use and to add to")
	fl.StringVar(&f.audit, "audit", "", "append a line of JSON about each run to this file")
	fl.BoolVar(&f.auditCode, "audit-code", false, "let --audit hold the code itself and the arguments of tools, not only their hashes")
	fl.StringVar(&f.transcript, "transcript", "", "write what happened as a web page to this file")
	fl.BoolVar(&f.goOn, "continue", false, "go on with the last conversation of this folder, in a new sandbox")
	fl.BoolVar(&f.private, "private", false, "keep neither what is typed nor the conversation for later")
	fl.BoolVar(&f.json, "json", false, "print events as lines of JSON, the answer last")
	complete(cmd)
	return cmd
}

// check finds what is wrong with flags together, and notes which were given.
func (f *flags) check(changed func(string) bool) error {
	f.approveGiven = changed("approve")
	f.netGiven, f.ownerGiven, f.packagesGiven = f.net.Given(changed), f.owner.Given(changed), f.packages.Given(changed)
	if changed("transcript") && f.transcript == "" || changed("out") && f.out == "" {
		return usagef("--out and --transcript need a name")
	}
	if changed("memory") && f.memory < minMemory {
		return usagef("--memory: %s is too little: at least %dMiB", f.memory.Long(), minMemory>>20)
	}
	if f.auditCode && f.audit == "" {
		return usagef("--audit-code needs --audit FILE")
	}
	return nil
}

// report says what went wrong and returns the exit status for it.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if s, ok := errors.AsType[output.Exit](err); ok {
		return int(s)
	}
	if _, ok := err.(*output.Error); ok {
		return exitLost // told already, and nothing else went wrong
	}
	code, message, hint := exitCannotRun, err.Error(), ""
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		hint = e.Hint
	}
	if bound, ok := errors.AsType[*agent.LimitError](err); ok {
		code, message = exitFailed, "no answer: the bound of "+bound.Limit+" was reached"
		switch bound.Bound {
		case agent.BoundTime:
			code, hint = exitTimeout, "--timeout raises it"
		case agent.BoundTurns:
			hint = "--max-turns raises it"
		default:
			hint = "ask for less at once"
		}
	}
	if _, ok := errors.AsType[usageError](err); ok {
		code = exitUsage
	}
	// The text may quote the model or the sandbox.
	w = terminal.Strict(w)
	fmt.Fprintf(w, "cubby: %s\n", strings.TrimSpace(message))
	if hint != "" && !strings.Contains(message, hint) {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return code
}
