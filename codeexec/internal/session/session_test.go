package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
)

func TestLines(t *testing.T) {
	var l session.Lines
	next := func(limit int, wantText string, wantOffset, wantNext int) {
		t.Helper()
		text, offset, next := l.Next(limit)
		if text != wantText || offset != wantOffset || next != wantNext {
			t.Errorf("got %q from %d, next %d; want %q from %d, next %d", text, offset, next, wantText, wantOffset, wantNext)
		}
	}
	next(-1, "", 0, 0)
	fmt.Fprint(&l, "one\ntwo\nprompt> ")
	next(1, "one\n", 0, 1)
	next(-1, "two\nprompt> ", 1, 2)
	next(-1, "", 2, 2)
	fmt.Fprint(&l, "answer\r\nrest")
	next(1, "answer\n", 2, 3)
	next(0, "", 3, 3)
	next(-1, "rest", 3, 3)
	if text, from, end := l.From(1, 2); text != "two\nprompt> answer\n" || from != 1 || end != 3 {
		t.Errorf("got %q, %d, %d", text, from, end)
	}
	if text, from, end := l.From(99, -1); text != "" || from != 4 || end != 4 {
		t.Errorf("got %q, %d, %d", text, from, end)
	}
}

// A character whose bytes come one by one is shown when it is whole.
func TestLinesHoldBackHalfCharacters(t *testing.T) {
	var l session.Lines
	text := "漢ü🎉"
	var got strings.Builder
	for i := range len(text) {
		l.Write([]byte{text[i]})
		part, _, _ := l.Next(-1)
		got.WriteString(part)
	}
	if got.String() != text {
		t.Errorf("got %q", got.String())
	}
	l.Write([]byte("\xe6\xbc"))
	l.Close()
	if part, _, _ := l.Next(-1); part != "\uFFFD" {
		t.Errorf("what never became whole: %q", part)
	}
}

func TestLinesAreBounded(t *testing.T) {
	t.Run("by number", func(t *testing.T) {
		var l session.Lines
		for i := range session.MaxLines + 500 {
			fmt.Fprintln(&l, i)
		}
		text, offset, next := l.Next(1)
		if text != "500\n" || offset != 500 || next != 501 {
			t.Errorf("got %q, %d, %d", text, offset, next)
		}
		if all, from, _ := l.From(0, -1); from != 500 || strings.Count(all, "\n") != session.MaxLines {
			t.Errorf("%d lines are kept from %d on", strings.Count(all, "\n"), from)
		}
	})
	t.Run("by size", func(t *testing.T) {
		var l session.Lines
		long := strings.Repeat("é", 50_000)
		for range 300 {
			fmt.Fprintln(&l, long)
		}
		all, _, _ := l.From(0, -1)
		if len(all) > 9<<20 || len(all) < 4<<20 || strings.Contains(all, "\uFFFD") {
			t.Errorf("%d bytes are kept", len(all))
		}
	})
}

// However a program cuts what it writes, its reader gets all of it, once.
func FuzzLines(f *testing.F) {
	f.Add("one\ntwo\r\nthree", 3, 1)
	f.Add("漢\n\xff\n\n", 1, 2)
	f.Fuzz(func(t *testing.T, text string, size, limit int) {
		size = max(size%50, 1)
		limit = max(limit%5, 1)
		var l session.Lines
		var got strings.Builder
		take := func(n int) {
			part, offset, next := l.Next(n)
			if next < offset || !utf8.ValidString(part) {
				t.Errorf("from %d to %d: %q", offset, next, part)
			}
			got.WriteString(part)
		}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			l.Write([]byte(rest[:n]))
			rest = rest[n:]
			take(limit)
		}
		l.Close()
		for range len(text) + 1 {
			take(limit)
		}
		if strings.Contains(text, "\r") || !utf8.ValidString(text) {
			return // these are shown otherwise
		}
		if got.String() != text {
			t.Errorf("got %q of %q", got.String(), text)
		}
	})
}

func TestHead(t *testing.T) {
	h := session.NewHead(5)
	for range 3 {
		if n, err := h.Write([]byte("aé")); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if text, cut := h.Text(); text != "aéa" || !cut || len(h.Bytes()) != 5 {
		t.Errorf("got %q, %v, %d", text, cut, len(h.Bytes()))
	}
}

// process is one that ends when it is told to.
type process struct {
	mu      sync.Mutex
	end     chan int
	ended   bool
	deaf    bool // to Terminate
	stone   bool // to Kill
	written strings.Builder
	err     error
}

func newProcess() *process { return &process{end: make(chan int, 1)} }

func (p *process) stop(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		p.end <- code
	}
}

func (p *process) Write(b []byte) (int, error) { return p.written.Write(b) }
func (p *process) Wait() (int, error)          { return <-p.end, p.err }

func (p *process) Terminate() error {
	if !p.deaf {
		p.stop(143)
	}
	return nil
}

func (p *process) Kill() error {
	if !p.stone {
		p.stop(-1)
	}
	return nil
}

func TestSession(t *testing.T) {
	t.Run("it ends by itself", func(t *testing.T) {
		p, out, told := newProcess(), session.NewOutput(100), make(chan bool, 1)
		s := session.Start("id", p, out, time.Hour, func() { told <- true })
		fmt.Fprint(out.Stdout(), "out\n")
		fmt.Fprint(out.Stderr(), "err\n")
		if poll := s.Poll(nil); poll.Status != codeexec.StatusRunning || poll.Output != "out\nerr\n" || poll.ExitCode != nil {
			t.Errorf("got %+v", poll)
		}
		if err := errors.Join(s.Write("a", true), s.Write("", false)); err != nil || p.written.String() != "a\n" {
			t.Errorf("wrote %q, %v", p.written.String(), err)
		}
		p.stop(3)
		r, err := s.Wait(t.Context())
		if err != nil || r.ExitCode != 3 || r.Stdout != "out\n" || r.Stderr != "err\n" || r.TimedOut || s.ID() != "id" {
			t.Errorf("got %+v, %v", r, err)
		}
		<-told
		if err := s.Write("late", false); cubby.CodeOf(err) != cubby.CodeConflict {
			t.Errorf("got %v", err)
		}
	})
	t.Run("its time is over", func(t *testing.T) {
		s := session.Start("id", newProcess(), session.NewOutput(100), 10*time.Millisecond, nil)
		if r, err := s.Wait(t.Context()); err != nil || !r.TimedOut || r.ExitCode != 124 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("it is asked first", func(t *testing.T) {
		s := session.Start("id", newProcess(), session.NewOutput(100), 0, nil)
		if err := s.Kill(time.Hour); err != nil {
			t.Error(err)
		}
		if r, _ := s.Wait(t.Context()); r.ExitCode != 143 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("and killed if it is deaf", func(t *testing.T) {
		p := newProcess()
		p.deaf = true
		s := session.Start("id", p, session.NewOutput(100), 0, nil)
		if err := s.Kill(10 * time.Millisecond); err != nil {
			t.Error(err)
		}
		if r, _ := s.Wait(t.Context()); r.ExitCode != -1 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("its machine is lost", func(t *testing.T) {
		p := newProcess()
		p.err = &cubby.Error{Code: cubby.CodeSandboxGone, Err: errors.New("killed")}
		s := session.Start("id", p, session.NewOutput(100), 0, nil)
		p.stop(-1)
		if _, err := s.Wait(t.Context()); cubby.CodeOf(err) != cubby.CodeSandboxGone {
			t.Errorf("got %v", err)
		}
	})
	t.Run("who waits may give up", func(t *testing.T) {
		s := session.Start("id", newProcess(), session.NewOutput(100), 0, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Wait(ctx); cubby.CodeOf(err) != cubby.CodeCanceled {
			t.Errorf("got %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("or give up and end it", func(t *testing.T) {
		p, out := newProcess(), session.NewOutput(100)
		s := session.Start("id", p, out, 0, nil)
		fmt.Fprint(out.Stdout(), "so far")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := s.WaitOrKill(ctx)
		if cubby.CodeOf(err) != cubby.CodeCanceled || r.ExitCode != -1 || r.Stdout != "so far" {
			t.Errorf("got %+v, %v", r, err)
		}
		if poll := s.Poll(nil); poll.Status != codeexec.StatusExited {
			t.Errorf("it goes on: %+v", poll)
		}
	})
	t.Run("and does not end it before that", func(t *testing.T) {
		p := newProcess()
		s := session.Start("id", p, session.NewOutput(100), 0, nil)
		p.stop(3)
		if r, err := s.WaitOrKill(t.Context()); err != nil || r.ExitCode != 3 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}
