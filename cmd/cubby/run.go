package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/cmd/internal/netflag"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
	"github.com/cubby-sandbox/cubby/cmd/internal/pkgflag"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/embedded"
)

// opener starts what runs the sandboxes; close ends it and every sandbox.
type opener func(ctx context.Context, cfg embedded.Config) (c *cubby.Client, close func() error, err error)

// openEmbedded starts the engine that belongs to this program, unless CUBBY_BINARY
// names another.
func openEmbedded(program engineProgram) opener {
	return func(ctx context.Context, cfg embedded.Config) (*cubby.Client, func() error, error) {
		if cfg.Binary == "" && os.Getenv("CUBBY_BINARY") == "" {
			var err error
			if cfg.Binary, err = program.Path(ctx); err != nil {
				return nil, nil, err
			}
		}
		c, err := embedded.Open(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		return c.Client, c.Close, nil
	}
}

// installTime is what packages have to be installed.
const installTime = 10 * time.Minute

// timeoutMargin is what the sandbox's timeout has beside the code's own: to start,
// and to send and fetch files.
const timeoutMargin = 5 * time.Minute

// runFlags are the flags of `cubby run`.
type runFlags struct {
	language, inline, out string
	files, env            []string
	timeout               timeValue
	limitFlags
	maxOutput, outMaxBytes bytesValue
	outMaxFiles            int
	python, node, engine   string
	json                   bool
	server                 serverValue
	sandbox                string
	net                    netflag.Sandbox
	owner                  netflag.Owner
	packages               pkgflag.Flags
}

func newRun(std stdio, open opener) *cobra.Command {
	f := runFlags{
		timeout: timeValue(time.Minute), limitFlags: defaultLimits(), maxOutput: 10 << 20,
		outMaxBytes: cubby.DefaultDownloadBytes,
	}
	cmd := &cobra.Command{
		Use:   "run [FILE | - | -e CODE] [-- ARGUMENTS]",
		Short: "Run a piece of code in a sandbox",
		Long: `Run a piece of code in a fresh sandbox and end the sandbox.

The language is given with -l, or told by FILE's extension or first line; code
without a file is Python. Languages: ` + languageList + `.

What the code prints comes as it is written; the value of its last expression
follows. Pictures are written to cubby-1.png and so on in the current folder, or
to the folder of -o. The code runs in ` + cubby.Home + `, sees none of this machine's
files but those of -f, and connects to nothing but what --allow names: hosts,
networks, or the hosts of a package registry such as @pypi. With --net open it is
everything public. Ping, IPv6, raw sockets and multicast cannot go out. What is not
public (this machine, its local network) --reach and --host-port open, too.

--pip, --npm and -r install packages before anything else comes in, with a network
that reaches their registry alone, and without running code of theirs (unless
--build is given). -r takes a requirements file, or a Python script that names its
packages in a block "# /// script".

What stands behind -- are the code's arguments. Its standard input is cubby's,
which is read ahead: give </dev/null where the rest is somebody else's, as in a
loop of a shell that reads lines.

The sandbox is one of this machine's, and a Cubby of its own is started for it.
With --server it is one of a server that runs: that of E2B_API_URL or E2B_DOMAIN,
else the one of this user's own "cubby serve"; or the one of --server=URL. The key is E2B_API_KEY, else that of
~/.config/cubby/config.json, which goes to the file's server only. With
--sandbox ID it is one that is there already, and lives on, at least for as long
as the run may take: files stay, and so do variables from run to run. One that is
paused is resumed.

Exit status: the code's own; 1 uncaught error; 124 timed out; 130 interrupted
(143 by SIGTERM, 129 by SIGHUP); 137 out of memory; 2 wrong use; 125 Cubby could
not run it at all; 120 the code ended well, but output could not be written, or
files of -o were left.

With --json there is one object, at the end, whenever the status is not 2: what is
known, and where the code was not run or did not come to its end, a "failure" that
says why. "error" is the code's own.`,
		Example: `  cubby run -e 'print(6*7)'
  cubby run -f data.csv -o out analysis.py
  echo 'console.log(process.version)' | cubby run -l js -
  cut -d, -f2 data.csv | cubby run sum.py -- --verbose
  cubby run --memory 2GiB --timeout 5m -f src:project script.sh
  cubby run --pip 'requests>=2.31' --allow api.example.com fetch.py
  cubby run -r script.py script.py
  cubby run --allow api.example.com --secret-header api.example.com:X-Api-Key=API_KEY report.py
  cubby run --server analysis.py
  cubby run --sandbox i3xk9 -e 'print(rows)'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			known := &runRecord{}
			if f.json {
				defer func() { err = known.print(std.out, err) }()
			}
			if i := slices.IndexFunc(args, isURL); i >= 0 && f.server.used && f.server.opts.URL == "" {
				return usagef("--server: its URL is joined to it, --server=%s", args[i])
			}
			var inline *string
			if cmd.Flags().Changed("eval") {
				inline = &f.inline
			}
			src, err := readSource(args, cmd.Flags().ArgsLenAtDash(), inline, f.language, std.in)
			if err != nil {
				return err
			}
			r, err := newRunner(std, open, src, f, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			known = &r.known
			return r.run(cmd.Context())
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVarP(&f.inline, "eval", "e", "", "run `CODE`")
	fl.StringVarP(&f.language, "language", "l", "", "language of the code")
	fl.StringArrayVarP(&f.files, "file", "f", nil, "copy a file or folder in, `LOCAL[:PATH]`; repeatable")
	fl.StringVarP(&f.out, "out", "o", "", "copy new and changed files, and rich results, to `DIR`")
	fl.IntVar(&f.outMaxFiles, "out-max-files", cubby.DefaultDownloadFiles, "at most so many files with -o")
	fl.Var(&f.outMaxBytes, "out-max-bytes", "at most so many bytes with -o")
	fl.StringArrayVar(&f.env, "env", nil, "set an environment variable, `NAME=VALUE`; repeatable")
	fl.Var(&f.timeout, "timeout", "wall time of the code; its sandbox has as long to start, and at least 20s")
	f.limitFlags.register(fl)
	fl.Var(&f.maxOutput, "max-output", "text kept of standard output and of standard error, each")
	fl.StringVar(&f.python, "python", "", "python3 to use (default $CUBBY_PYTHON, then python3 on PATH)")
	fl.StringVar(&f.node, "node", "", "node to use (default $CUBBY_NODE, then node on PATH)")
	fl.StringVar(&f.engine, "engine", enginename.Default, engineUsage)
	f.net.Register(cmd)
	f.owner.Register(cmd)
	f.packages.Register(cmd)
	fl.BoolVar(&f.json, "json", false, "print one JSON object at the end instead of text")
	fl.Var(&f.server, "server", "run on a server: that of `[=URL]`, else of $E2B_API_URL or $E2B_DOMAIN, else of cubby serve")
	fl.Lookup("server").NoOptDefVal = "true" // pflag's way to say that the value may be left out
	fl.StringVar(&f.sandbox, "sandbox", "", "run in the sandbox `ID` of the server, and leave it")
	plainHTTPFlag(fl, &f.server.opts)
	complete := func(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return (&serverFlags{f.server.opts}).completeIDs(cmd, nil, start)
	}
	if err := cmd.RegisterFlagCompletionFunc("sandbox", complete); err != nil {
		panic(err) // a flag that is not there
	}
	return cmd
}

// runner is one `cubby run`.
type runner struct {
	std      stdio
	from     origin
	src      source
	flags    runFlags
	env      map[string]string
	shares   []share
	limits   cubby.Limits // only what was asked for
	net      cubby.Network
	packages cubby.Packages

	leastStart time.Duration // what a start gets, however short the code's time is

	screen *screen
	spin   *terminal.Spinner
	known  runRecord
}

// newRunner checks the whole command line before anything is started.
func newRunner(std stdio, open opener, src source, f runFlags, changed func(string) bool) (*runner, error) {
	r := &runner{std: std, src: src, flags: f, leastStart: leastStart}
	var err error
	if r.env, err = parsePairs("env", f.env); err != nil {
		return nil, err
	}
	for _, s := range f.files {
		sh, err := parseShare(s, exists)
		if err != nil {
			return nil, err
		}
		if err := readable(sh.local); err != nil {
			return nil, err
		}
		for _, other := range r.shares {
			if other.remote == sh.remote {
				return nil, usagef("-f %s and -f %s both become %s", other.local, sh.local, sh.remote)
			}
		}
		r.shares = append(r.shares, sh)
	}
	if err := f.check(changed); err != nil {
		return nil, err
	}
	if r.net, err = f.net.Network(os.Getenv); err != nil {
		return nil, usageError{err}
	}
	if r.packages, err = f.packages.Packages(); err != nil {
		return nil, usageError{err}
	}
	if !f.elsewhere() { // the judge is this version's own
		if err := netflag.Check(r.net, f.owner); err != nil {
			return nil, usageError{err}
		}
	}
	if r.from, err = f.origin(open, changed, func(err error) { report(r.screen.notes, err) }); err != nil {
		return nil, err
	}
	r.limits = f.asked(changed)
	return r, nil
}

func (r *runner) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer onSignal(cancel)()
	defer output.CatchPipe()()
	errs := output.New("standard error", r.std.err)
	for _, o := range []io.Writer{r.std.out, errs} {
		if o, ok := o.(*output.Stream); ok {
			o.OnLoss(func(err error) {
				if output.BrokenPipe(err) {
					cancel(err) // nobody is left to run for
				}
			})
		}
	}
	r.std.err = errs

	var watched io.Writer
	if terminal.Is(r.std.err) && !r.flags.json {
		watched = r.std.err
	}
	r.spin = terminal.NewSpinner(watched, "starting a sandbox")
	defer r.spin.Stop()
	r.screen = newScreen(r.std, r.flags.json)

	err = r.opened(ctx)
	r.spin.Stop()
	cause := context.Cause(ctx)
	switch {
	case output.BrokenPipe(cause):
		r.known.failure = cause
		return status(exitBrokenPipe)
	case err != nil && cause != nil:
		fmt.Fprintln(r.std.err, "cubby: interrupted")
		r.known.failure = &cubby.Error{Code: cubby.CodeCanceled, Err: errors.New("interrupted")}
		if by, ok := errors.AsType[signalError](cause); ok {
			return status(128 + int(by.signal))
		}
		return status(exitInterrupted)
	case err == nil && errs.Failure() != nil:
		return status(exitLost)
	}
	return err
}

// opened runs the code in a sandbox, which is let go of when it returns.
func (r *runner) opened(ctx context.Context) (err error) {
	startCtx, started := r.startContext(ctx)
	defer started()
	life := time.Duration(r.flags.timeout) + timeoutMargin
	if r.installs() {
		r.spin.Say("starting a sandbox, installing packages")
		life += installTime
	}
	sbx, release, err := r.from.obtain(startCtx, min(life, maxTimeout),
		cubby.WithLimits(r.limits), cubby.WithWarm(r.src.language), cubby.WithNetwork(r.net), cubby.WithPackages(r.packages))
	if err != nil {
		return r.tooSlow(startCtx, r.from.explain(err))
	}
	defer func() {
		if rerr := release(err); rerr != nil && err == nil {
			err = rerr
		}
	}()
	return r.from.explain(r.inSandbox(ctx, sbx))
}

// leastStart is what a start gets at least: it takes a third of a second on an
// idle machine, and has been seen to take ten on one with twenty times more to do
// than it can. Whoever gives code two seconds means the code.
const leastStart = 20 * time.Second

// startContext bounds the start, from nothing to a sandbox that answers.
func (r *runner) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.startTime())
}

func (r *runner) startTime() time.Duration {
	t := max(time.Duration(r.flags.timeout), r.leastStart)
	if r.installs() {
		t += installTime
	}
	return t
}

func (r *runner) installs() bool { return len(r.packages.Pip)+len(r.packages.Npm) > 0 }

// tooSlow says of an error that came when the start's time was over that this is
// why. The code did not run, so that its own status for a timeout would mislead.
func (r *runner) tooSlow(start context.Context, err error) error {
	if !errors.Is(start.Err(), context.DeadlineExceeded) {
		return err
	}
	return &cubby.Error{
		Op: "start", Code: cubby.CodeUnavailable, Err: fmt.Errorf("no sandbox was ready within %v, and the code was not run", r.startTime()),
		Hint: r.from.slow(),
	}
}

func (r *runner) inSandbox(ctx context.Context, sbx *cubby.Sandbox) error {
	r.known.unenforced = sbx.LimitsNotEnforced()
	for _, s := range r.shares {
		if err := sbx.Files().Upload(ctx, s.local, s.remote); err != nil {
			switch cubby.CodeOf(err) {
			case cubby.CodeInvalidArgument, cubby.CodePermissionDenied:
				return usageError{fmt.Errorf("-f %w", unwrapOp(err))}
			}
			return err
		}
	}
	input := standardInput(r.src, r.std.in)
	c := &collector{files: sbx.Files(), flags: r.flags}
	r.known.files = c
	if p := r.src.program; p != "" && p != "-" {
		c.source = cubby.Entry{Path: path.Join(cubby.Home, p), Size: int64(len(r.src.code))}
	}
	if err := c.before(ctx); err != nil {
		return err
	}
	r.spin.Say("running")
	began := time.Now()
	if _, typed := input.(keyboard); typed {
		r.spin.Stop() // it would write over what is being typed
	}
	ex, err := sbx.RunCode(ctx, r.src.code,
		cubby.WithLanguage(r.src.language),
		cubby.WithProgram(r.src.program, r.src.args...),
		cubby.WithStdin(input),
		cubby.WithEnv(r.env),
		cubby.WithTimeout(time.Duration(r.flags.timeout)),
		cubby.WithMaxOutput(int64(r.flags.maxOutput)),
		cubby.WithDrain(),
		cubby.OnStdout(func(s string) { r.spin.Stop(); r.screen.stdout(s) }),
		cubby.OnStderr(func(s string) { r.spin.Stop(); r.screen.stderr(s) }),
		cubby.OnResult(func(res cubby.Result) { r.spin.Stop(); r.screen.result(res) }),
		cubby.OnError(func(e cubby.ExecutionError) { r.spin.Stop(); r.screen.failure(e) }))
	r.spin.Stop()
	r.screen.end()
	r.known.execution, r.known.waited = ex, time.Since(began)
	switch {
	case gone(err, "out of memory"):
		r.known.failure = err
		if ex != nil {
			ex.OOMKilled = true
		}
		report(r.screen.notes, err)
		fmt.Fprintf(r.screen.notes, "cubby: out of memory%s\n", r.memoryLimit())
		return status(exitOutOfMemory)
	case err != nil:
		return err
	}
	cerr := c.after(ctx, ex.Results)
	code := exitStatus(ex)
	r.known.code = code
	if cerr != nil {
		r.known.left = []leftFile{{".", cerr.Error()}}
	}
	if !r.flags.json {
		r.notes(ex, c)
	}
	c.sayLeft(r.screen.notes)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cerr != nil:
		// The code ran: its status comes first, what went wrong then is told.
		report(r.screen.notes, cerr)
		err = cerr
	}
	switch {
	case code != exitOK:
		return status(code)
	case err != nil || c.lost:
		return status(exitLost)
	}
	return nil
}

// memoryLimit says what the limit was, where the run has set it.
func (r *runner) memoryLimit() string {
	if _, ok := r.from.(existing); ok {
		return ": the limit is the sandbox's"
	}
	return fmt.Sprintf(": the limit is %s (--memory)", r.flags.memory.String())
}

// gone reports an error that says of the sandbox that it ended for a reason.
func gone(err error, reason string) bool {
	e, ok := errors.AsType[*cubby.Error](err)
	return ok && e.Code == cubby.CodeSandboxGone && strings.Contains(e.Err.Error(), reason)
}

// notes says on standard error what became of the run beside its text.
func (r *runner) notes(ex *cubby.Execution, c *collector) {
	w := r.screen.notes
	switch {
	case ex.TimedOut:
		fmt.Fprintf(w, "cubby: timed out after %v (--timeout)\n", r.flags.timeout.String())
	case ex.OOMKilled:
		fmt.Fprintf(w, "cubby: out of memory%s\n", r.memoryLimit())
	}
	if ex.Truncated {
		fmt.Fprintf(w, "cubby: output was cut: the limit is %s a stream (--max-output)\n", r.flags.maxOutput.Long())
	}
	for _, refused := range ex.Refused {
		fmt.Fprintln(w, "cubby: "+r.refusal(refused))
	}
	for _, f := range c.saved {
		fmt.Fprintln(w, "wrote "+f.shown)
	}
}

// refusal says in one line what the network refused, and which flags open it.
func (r *runner) refusal(refused cubby.Refusal) string {
	if _, ok := r.from.(existing); ok || refused.Allow == "" {
		return "network: " + refused.Reason
	}
	what := refused.Host
	if refused.Port != 0 {
		what = net.JoinHostPort(what, strconv.Itoa(refused.Port))
	}
	how := fmt.Sprintf("--allow %s opens it", refused.Allow)
	switch refused.Allow {
	case "@pypi":
		how = "--pip PACKAGE installs one, " + how
	case "@npm":
		how = "--npm PACKAGE installs one, " + how
	}
	return fmt.Sprintf("network: %s is not allowed: %s", what, how)
}

// exitStatus is the command's status for an execution that ended.
func exitStatus(ex *cubby.Execution) int {
	switch {
	case ex.TimedOut:
		return exitTimeout
	case ex.OOMKilled:
		return exitOutOfMemory
	}
	code := ex.ExitCode & 0xff // as the system cuts it
	if code == 0 && ex.Error != nil && !quiet(ex.Error) {
		code = exitFailed
	}
	return code
}

// quiet reports an error that only says that the code chose to end.
func quiet(e *cubby.ExecutionError) bool { return e.Name == "SystemExit" || e.Name == "KernelExited" }

// unwrapOp returns the cause without the operation, which the command names in
// its own words.
func unwrapOp(err error) error {
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		return e.Err
	}
	return err
}

// screen shows text as it comes.
type screen struct {
	out, err io.Writer
	notes    io.Writer // what the command itself says
	silent   bool
	midLine  bool // the last text on out did not end its line
}

func newScreen(std stdio, silent bool) *screen {
	s := &screen{out: terminal.Sanitize(std.out, terminal.Is(std.out)), err: terminal.Sanitize(std.err, terminal.Is(std.err)), silent: silent}
	s.notes = s.err
	return s
}

func (s *screen) stdout(text string) {
	if s.silent || text == "" {
		return
	}
	_, _ = io.WriteString(s.out, text) // the run goes on without its reader, as its files may matter
	s.midLine = !strings.HasSuffix(text, "\n")
}

func (s *screen) stderr(text string) {
	if !s.silent {
		_, _ = io.WriteString(s.err, text)
	}
}

// result prints the readable form of a result. A picture has none: its text
// only says that it is a picture.
func (s *screen) result(r cubby.Result) {
	text := r.Markdown
	if text == "" && len(pictures(r)) == 0 {
		text = r.Text
	}
	if text == "" || s.silent {
		return
	}
	if s.midLine {
		s.stdout("\n")
	}
	s.stdout(strings.TrimSuffix(text, "\n") + "\n")
}

func (s *screen) failure(e cubby.ExecutionError) {
	if s.silent || quiet(&e) {
		return
	}
	if e.Name == "KernelDied" { // there is no kernel in a user's world: a program was killed
		s.end()
		fmt.Fprintln(s.notes, "cubby: the code was "+e.Value)
		return
	}
	text := e.Traceback
	if strings.TrimSpace(text) == "" {
		text = e.Error()
	}
	s.stderr(strings.TrimSuffix(text, "\n") + "\n")
}

// end leaves a terminal as it was, at the start of a line; a pipe gets exactly what
// was printed.
func (s *screen) end() {
	for _, w := range []io.Writer{s.out, s.err} {
		if f, ok := w.(*terminal.Filter); ok {
			_ = f.End() // its failure is kept by the output below
		}
	}
}
