package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/data"
	"github.com/cubby-sandbox/cubby/agent/parsers"
	"github.com/cubby-sandbox/cubby/agent/toolbox"
	"github.com/cubby-sandbox/cubby/agent/transcript"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/cmd/internal/lineedit"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/cmd/internal/userstate"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/fromenv"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

// defaultOut is where files go that come back. It is made when the first comes.
const defaultOut = "cubby-out"

const (
	maxQuestion  = 1 << 20 // bytes of a question from standard input
	maxDescribed = 20      // files that the model is told of at length
)

// command is one run of the program.
type command struct {
	std   Streams
	flags flags

	lines   *lines            // standard input; nil if it is the question
	editor  *lineedit.Editor  // the same, where a person types on a terminal; else nil
	state   *userstate.Folder // nil: nothing is kept
	view    *view
	json    *jsonWriter // with --json
	signals *signals
	session *agent.Session
	always  bool // every run is approved

	executor codeexec.CodeExecutor
	inputs   []codeexec.File // of -f
	events   []agent.Event   // for the transcript
	files    []codeexec.File // that came back
	lost     bool            // something that came back could not be written
}

func newCommand(std Streams, f flags) *command { return &command{std: std, flags: f} }

func (c *command) run(ctx context.Context, question string, asked bool) (err error) {
	if c.flags.maxTurns < 1 || c.flags.timeout <= 0 {
		return usagef("--max-turns and --timeout must be more than 0")
	}
	if asked && question == "-" {
		text, err := io.ReadAll(io.LimitReader(c.std.In, maxQuestion))
		if err != nil {
			return fmt.Errorf("read the question: %w", err)
		}
		question = string(text)
	} else {
		c.lines = readLines(c.std.In)
	}
	if asked && strings.TrimSpace(question) == "" {
		return usagef("the question is empty")
	}
	if !c.flags.private {
		// Without a home, or with one that is another's, it works and is forgotten.
		if folder, err := userstate.Open(os.Getenv); err == nil {
			defer folder.Close()
			c.state = folder
		}
	}
	var before *conversation
	if c.flags.goOn {
		if before, err = lastConversation(c.state); err != nil {
			return err
		}
		c.flags.files = before.addFiles(c.flags.files)
	}
	if c.inputs, err = readInputs(c.flags.files); err != nil {
		return err
	}
	if c.flags.json {
		c.json = &jsonWriter{w: c.std.Out}
	}
	c.view = newView(c.std, c.flags.json)
	defer c.view.close()
	if c.lines != nil {
		c.editor = newEditor(c.std.In, c.view.w)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer output.CatchPipe()()
	for _, w := range []io.Writer{c.std.Out, c.std.Err} {
		if s, ok := w.(*output.Stream); ok {
			s.OnLoss(func(err error) {
				if output.BrokenPipe(err) {
					cancel(err) // nobody is left to work for
				}
			})
		}
	}
	ctx, c.signals = watch(ctx)
	defer c.signals.stop()

	defer func() {
		if err == nil && c.lost {
			err = output.Exit(exitLost)
		}
	}()
	a, closeAll, err := c.assemble(ctx)
	if err != nil {
		return c.interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	c.session = a.Session("")
	defer func() { err = errors.Join(err, c.session.Close()) }()
	if before != nil {
		if err := c.session.Restore(before.messages()); err != nil {
			return err
		}
		c.view.note("going on with the conversation of %s (%s); variables and files of its sandbox are gone%s",
			before.Time.Local().Format("2 January 15:04"), count(before.replies(), "reply", "replies"), before.putBack())
	}
	q := c.question(ctx, question)
	if !asked {
		return c.chat(ctx, q)
	}
	_, err = c.ask(ctx, q)
	return c.interrupted(ctx, err)
}

// interrupted gives Ctrl-C its own status, whatever it made fail, and so it does to
// a reader that has gone.
func (c *command) interrupted(ctx context.Context, err error) error {
	if output.BrokenPipe(context.Cause(ctx)) {
		return output.Exit(exitBrokenPipe)
	}
	if err != nil && ctx.Err() != nil {
		c.view.echoed()
		c.view.close()
		fmt.Fprintln(c.std.Err, "cubby: interrupted")
		return output.Exit(exitInterrupted)
	}
	return err
}

// assemble makes the agent. What can be wrong is found before anything starts.
func (c *command) assemble(ctx context.Context) (_ *agent.Agent, _ func() error, err error) {
	f := c.flags
	model, err := newModel(f)
	if err != nil {
		return nil, nil, err
	}
	if f.mode != string(agent.ModeBlocks) && f.mode != string(agent.ModeTools) {
		return nil, nil, usagef("--mode %.40q: it is blocks or tools", f.mode)
	}
	opts := []agent.Option{agent.WithMode(agent.Mode(f.mode)), agent.WithLimits(agent.Limits{Turns: f.maxTurns, Time: f.timeout})}
	system, err := readSystem(f.system)
	if err != nil {
		return nil, nil, err
	}
	var skills *skill.Folders
	if len(f.skills) > 0 {
		if skills, err = openSkills(f.skills); err != nil {
			return nil, nil, err
		}
	}
	var policy *validate.Policy
	if f.policy != "" {
		if policy, err = readPolicy(f.policy); err != nil {
			return nil, nil, err
		}
	}
	approve := f.approve
	if executorKind(f) == fromenv.UnsafeLocal && !f.approveGiven {
		c.view.note("code runs on this machine without any wall, so you are asked before each run (--approve=false: not)")
		approve = true
	}
	// Without --approve a person is asked only where the policy wants one, and
	// only if one is there.
	if c.lines != nil && (approve || policy != nil && c.lines.terminal && !f.json) {
		opts = append(opts, agent.WithApproval(c.approver(approve)))
	} else if approve {
		return nil, nil, usagef("--approve asks on standard input, which is the question")
	}
	var toClose []io.Closer
	closeAll := func() error {
		var errs []error
		for i := len(toClose) - 1; i >= 0; i-- {
			errs = append(errs, toClose[i].Close())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	if f.audit != "" {
		var options []agent.AuditOption
		if f.auditCode {
			options = append(options, agent.AuditCode())
		}
		audit, file, err := agent.OpenAudit(f.audit, options...)
		if err != nil {
			return nil, nil, err
		}
		toClose = append(toClose, file)
		opts = append(opts, agent.WithAudit(audit))
	}
	if f.tools != "" {
		box, err := toolbox.Open(f.tools)
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, agent.WithToolbox(box))
	}
	if f.transcript != "" { // after the work it would be too late to learn that it cannot be
		// The page takes the place of what has its name, which must not be a device.
		if info, err := os.Stat(f.transcript); err == nil && !info.Mode().IsRegular() {
			return nil, nil, usagef("--transcript: %s is not a file", f.transcript)
		}
		// As the user's umask says: the page is made to be shared.
		if err := os.WriteFile(f.transcript, nil, 0o666); err != nil {
			return nil, nil, usagef("--transcript: %w", err)
		}
	}
	stop := c.view.wait("starting a sandbox")
	executor, err := newExecutor(ctx, f)
	c.executor = executor
	stop()
	if err != nil {
		return nil, nil, err
	}
	toClose = append(toClose, executor)
	if skills != nil {
		tools, all, err := newSkills(skills, executor, f)
		if err != nil {
			return nil, nil, err
		}
		toClose = append(toClose, tools)
		opts = append(opts, agent.WithTools(all...))
		system = strings.TrimSpace(system + "\n\n" + tools.Overview())
	}
	opts = append(opts, agent.WithInstructions(system))
	if policy != nil {
		v, err := validate.New(executor, validate.Options{Policy: policy, Checkers: parsers.Checkers()})
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, agent.WithValidator(v))
	}
	a, err := agent.New(model, executor, opts...)
	return a, closeAll, err
}

// question is the first one, with the files of -f.
func (c *command) question(ctx context.Context, text string) agent.Question {
	q := agent.Question{Text: text, Files: c.inputs, Images: picturesOf(c.inputs)}
	for _, p := range c.flags.files {
		if len(q.Context) == maxDescribed {
			break
		}
		// What cannot be described is there all the same.
		if source, err := data.File(ctx, c.executor, p); err == nil {
			q.Context = append(q.Context, source.Description)
		}
	}
	return q
}

// ask asks one question, shows what happens and keeps what comes back.
func (c *command) ask(ctx context.Context, q agent.Question) (*agent.Answer, error) {
	if c.flags.transcript != "" {
		defer c.writeTranscript()
	}
	answer, err := c.session.Ask(ctx, q, func(e agent.Event) {
		if c.flags.transcript != "" {
			c.events = append(c.events, e)
		}
		if c.json != nil {
			c.json.write(e)
			return
		}
		c.view.event(e)
	})
	if ctx.Err() != nil {
		c.view.echoed()
	}
	c.view.endTurn()
	if answer == nil {
		return nil, err
	}
	if c.state != nil && answer.Turns > 0 {
		if kept := keepConversation(c.state, c.session.Messages(), c.flags.files); kept != nil {
			c.view.note("the conversation is not kept for --continue: %v", kept)
		}
	}
	c.files = append(c.files, answer.Files...)
	written := c.save(c.flags.out, answer.Files)
	if c.json != nil {
		c.json.answer(answer, written, err)
	} else {
		c.view.finish(answer, written, err)
	}
	return answer, err
}

// save writes files to a folder and notes whether any is not there as it should be.
func (c *command) save(dir string, files []codeexec.File) []saved {
	all := save(dir, files)
	c.lost = c.lost || slices.ContainsFunc(all, func(s saved) bool { return s.left != "" })
	return all
}

// writeTranscript writes the page anew, as one file that is whole at any time.
func (c *command) writeTranscript() {
	err := func() error {
		f, err := os.CreateTemp(filepath.Dir(c.flags.transcript), ".transcript-*")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name()) // fails once it has its name
		// The page keeps the mode of the file that it replaces: a temporary file is
		// its owner's alone.
		info, err := os.Stat(c.flags.transcript)
		if err == nil {
			err = f.Chmod(info.Mode().Perm())
		}
		err = errors.Join(err, transcript.Write(f, "", c.events), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), c.flags.transcript)
		}
		return err
	}()
	if err != nil {
		c.lost = true
		c.view.note("--transcript: %v", err)
		return
	}
	c.view.note("wrote %s", c.flags.transcript)
}

// read asks a person for a line, or for the lines of an editor.
func (c *command) read(ctx context.Context, prompt string, h lineedit.History) (string, error) {
	if c.editor != nil {
		c.view.begin("prompt")
		defer c.view.begin("")
		return c.editor.Read(ctx, prompt, h)
	}
	if prompt == "" {
		return c.lines.next(ctx)
	}
	c.view.prompt(prompt)
	if err := c.view.failure(); err != nil {
		return "", fmt.Errorf("what is asked could not be shown: %w", err)
	}
	text, err := c.lines.next(ctx)
	if !c.lines.terminal {
		c.view.prompt("\n")
	}
	return text, err
}

// discardTyped forgets what was typed on a terminal and has not been read.
func (c *command) discardTyped() error {
	if c.editor != nil {
		return c.editor.Discard()
	}
	return c.lines.discard()
}

// approver asks a person: for each run, or for those that the policy is unsure
// of.
func (c *command) approver(each bool) agent.Approver {
	return func(ctx context.Context, r agent.ApprovalRequest) (agent.Approval, error) {
		if c.always || !each && !r.Required {
			return agent.Approval{Approved: true}, nil
		}
		c.view.code(r.Language, r.Code)
		if r.Tool != "" {
			c.view.note("called as the tool %s with %.2000s", r.Tool, r.Arguments)
		}
		c.view.findings(r.Report.Findings)
		// What was typed before the code was shown approves nothing.
		if err := c.discardTyped(); err != nil {
			return agent.Approval{}, err
		}
		line, err := c.read(ctx, "Run this? [y]es, [n]o, [a]lways, or say why not: ", nil)
		if errors.Is(err, lineedit.ErrInterrupted) {
			c.signals.take(os.Interrupt) // as the terminal's own Ctrl-C
			return agent.Approval{}, context.Canceled
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return agent.Approval{}, err
		}
		switch answer := strings.TrimSpace(line); strings.ToLower(answer) {
		case "y", "yes":
			return agent.Approval{Approved: true}, nil
		case "a", "always":
			c.always = true
			return agent.Approval{Approved: true}, nil
		case "", "n", "no":
			return agent.Approval{}, nil
		default:
			return agent.Approval{Reason: answer}, nil
		}
	}
}

// answerText is the answer for a pipe.
func answerText(w io.Writer, text string) {
	_, _ = io.WriteString(terminal.Strict(w), strings.TrimRight(text, "\n")+"\n") // the files and the rest are still to come
}
