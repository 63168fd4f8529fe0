package skill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

const (
	defaultYield = time.Second
	maxYield     = time.Minute
	settleTime   = 150 * time.Millisecond // after the last output
	pollTime     = 20 * time.Millisecond
	defaultLines = 200
	killGrace    = 2 * time.Second
)

// ExecInput is the input of skill_exec.
type ExecInput struct {
	RunInput
	TTY         bool `json:"tty,omitempty" desc:"Give the command a terminal"`
	YieldTimeMS int  `json:"yield_time_ms,omitempty" desc:"How long to wait for output or the end, in milliseconds; 1000 by default"`
	PollLines   int  `json:"poll_lines,omitempty" desc:"How many lines to return; 200 by default"`
}

// WriteStdinInput is the input of skill_write_stdin.
type WriteStdinInput struct {
	SessionID   string `json:"session_id"`
	Chars       string `json:"chars,omitempty" desc:"What to type"`
	Submit      bool   `json:"submit,omitempty" desc:"Press Enter after it"`
	YieldTimeMS int    `json:"yield_time_ms,omitempty" desc:"How long to wait for output or the end, in milliseconds; 1000 by default"`
	PollLines   int    `json:"poll_lines,omitempty" desc:"How many lines to return; 200 by default"`
}

// PollInput is the input of skill_poll_session.
type PollInput struct {
	SessionID   string `json:"session_id"`
	YieldTimeMS int    `json:"yield_time_ms,omitempty" desc:"How long to wait for output or the end, in milliseconds; 1000 by default"`
	PollLines   int    `json:"poll_lines,omitempty" desc:"How many lines to return; 200 by default"`
}

// KillInput is the input of skill_kill_session.
type KillInput struct {
	SessionID string `json:"session_id"`
}

// SessionOutput is what the tools of interactive commands return.
type SessionOutput struct {
	SessionID  string `json:"session_id"`
	Status     string `json:"status" desc:"running or exited"`
	Output     string `json:"output" desc:"What was printed since the last call"`
	Offset     int    `json:"offset"`
	NextOffset int    `json:"next_offset"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	// Result is there when the command has ended and all its output was returned.
	Result   *RunOutput `json:"result,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`
}

// KillOutput is what skill_kill_session returns.
type KillOutput struct {
	OK        bool   `json:"ok"`
	SessionID string `json:"session_id"`
	Status    string `json:"status"`
}

// running is an interactive command, until its end was told.
type running struct {
	session codeexec.ProgramSession
	p       *prepared
	began   time.Time

	mu     sync.Mutex // one poll at a time
	result *RunOutput
}

// Exec is the tool skill_exec: it starts a command to talk to.
func (t *Tools) Exec(ctx context.Context, in ExecInput) (SessionOutput, error) {
	const op = "skill_exec"
	if err := t.room(); err != nil {
		return SessionOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	var s codeexec.ProgramSession
	p, err := t.start(ctx, in.RunInput, func(p *prepared) (err error) {
		s, err = t.cfg.Engine.Runner().StartProgram(ctx, p.handle.Workspace, codeexec.InteractiveProgramSpec{RunProgramSpec: p.spec, TTY: in.TTY})
		return err
	})
	if err != nil {
		return SessionOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	r := &running{session: s, p: p, began: time.Now()}
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.sessions[s.ID()] = r
	}
	t.mu.Unlock()
	if closed {
		s.Close()
		return SessionOutput{}, execerr.Wrap(op, cubby.CodeConflict, errClosed)
	}
	out, err := t.poll(ctx, r, in.YieldTimeMS, in.PollLines)
	return out, execerr.Wrap(op, cubby.CodeInternal, err)
}

// room makes room for a session: those that have ended are forgotten, oldest
// first.
func (t *Tools) room() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sessions) < t.cfg.MaxSessions {
		return nil
	}
	var ended []*running
	none := 0
	for _, r := range t.sessions {
		// A poll of no lines takes nothing.
		if r.session.Poll(&none).Status == codeexec.StatusExited {
			ended = append(ended, r)
		}
	}
	if len(ended) == 0 {
		return &cubby.Error{
			Code: cubby.CodeRateLimited, Err: fmt.Errorf("%d interactive commands run already", len(t.sessions)),
			Hint: "end one with skill_kill_session",
		}
	}
	oldest := slices.MinFunc(ended, func(a, b *running) int { return a.began.Compare(b.began) })
	delete(t.sessions, oldest.session.ID())
	return nil
}

func (t *Tools) find(id string) (*running, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.sessions[id]
	if !ok {
		return nil, notFound("no session is called %.100q", id)
	}
	return r, nil
}

// WriteStdin is the tool skill_write_stdin.
func (t *Tools) WriteStdin(ctx context.Context, in WriteStdinInput) (SessionOutput, error) {
	const op = "skill_write_stdin"
	r, err := t.find(in.SessionID)
	if err == nil && len(in.Chars) > maxStdin {
		err = invalid("more than %d bytes", maxStdin)
	}
	if err == nil && (in.Chars != "" || in.Submit) {
		err = r.session.Write(in.Chars, in.Submit)
	}
	if err != nil {
		return SessionOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	out, err := t.poll(ctx, r, in.YieldTimeMS, in.PollLines)
	return out, execerr.Wrap(op, cubby.CodeInternal, err)
}

// PollSession is the tool skill_poll_session.
func (t *Tools) PollSession(ctx context.Context, in PollInput) (SessionOutput, error) {
	const op = "skill_poll_session"
	r, err := t.find(in.SessionID)
	if err != nil {
		return SessionOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	out, err := t.poll(ctx, r, in.YieldTimeMS, in.PollLines)
	return out, execerr.Wrap(op, cubby.CodeInternal, err)
}

// KillSession is the tool skill_kill_session. It forgets the session.
func (t *Tools) KillSession(_ context.Context, in KillInput) (KillOutput, error) {
	const op = "skill_kill_session"
	r, err := t.find(in.SessionID)
	if err == nil {
		err = r.session.Kill(killGrace)
	}
	if err != nil {
		return KillOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sessions, in.SessionID)
	return KillOutput{OK: true, SessionID: in.SessionID, Status: codeexec.StatusExited}, nil
}

// poll waits for output to come and to pause, or for the end, and returns it.
func (t *Tools) poll(ctx context.Context, r *running, yieldMS, lines int) (SessionOutput, error) {
	if yieldMS < 0 || lines < 0 {
		return SessionOutput{}, invalid("a bound is negative")
	}
	yield := defaultYield
	if yieldMS > 0 {
		yield = maxYield
		if yieldMS < int(maxYield/time.Millisecond) {
			yield = time.Duration(yieldMS) * time.Millisecond
		}
	}
	if lines == 0 {
		lines = defaultLines
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := SessionOutput{SessionID: r.session.ID(), Status: codeexec.StatusRunning, Offset: -1}
	var text strings.Builder
	end, quiet := time.Now().Add(yield), time.Time{}
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	for first := true; ; first = false {
		left := max(lines-strings.Count(text.String(), "\n"), 0)
		poll := r.session.Poll(&left)
		if out.Offset < 0 {
			out.Offset = poll.Offset
		}
		out.NextOffset, out.Status, out.ExitCode = poll.NextOffset, poll.Status, poll.ExitCode
		text.WriteString(poll.Output)
		now := time.Now()
		if poll.Output != "" {
			quiet = now.Add(settleTime)
		}
		// Who polls again and again is answered at once when all was told.
		if poll.Status == codeexec.StatusExited || left == 0 || now.After(end) || !first && !quiet.IsZero() && now.After(quiet) {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			// What was taken from the session is told: it comes only once.
			end = now
		}
	}
	var cut bool
	if out.Output, cut = cutMiddle(codeexec.CleanText(text.String()), maxStream); cut {
		out.Warnings = append(out.Warnings, "the middle of the output is left out")
	}
	// With room left in the last poll there was no more to take.
	if out.Status == codeexec.StatusExited && strings.Count(text.String(), "\n") < lines {
		if err := t.end(ctx, r, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// end adds what became of a command that has ended, once its files are
// collected.
func (t *Tools) end(ctx context.Context, r *running, out *SessionOutput) error {
	if r.result == nil {
		res, err := r.session.Wait(ctx)
		if err != nil {
			t.lost(r.p.handle, err)
			return err
		}
		result := t.finish(ctx, r.p, res)
		result.Stdout, result.Stderr = "", "" // that was told already
		r.result = &result
	}
	out.Result = r.result
	return nil
}
