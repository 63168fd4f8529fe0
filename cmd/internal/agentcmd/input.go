package agentcmd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby/cmd/internal/lineedit"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// lines reads standard input line by line, such that a wait for one can be given
// up. The goroutine that reads ends with the input: one that sits in a terminal's
// read cannot be called back.
type lines struct {
	file     *os.File // nil unless it is one
	terminal bool
	want     chan struct{}
	got      chan line
}

type line struct {
	text string
	err  error
}

func readLines(r io.Reader) *lines {
	f, ok := r.(*os.File)
	l := &lines{file: f, terminal: ok && term.IsTerminal(int(f.Fd())), want: make(chan struct{}), got: make(chan line)}
	go func() {
		in := bufio.NewReaderSize(r, maxQuestion)
		for range l.want {
			text, err := in.ReadString('\n')
			if err != nil && text != "" {
				err = nil
			}
			l.got <- line{text, err}
			if err != nil {
				close(l.got)
				return
			}
		}
	}()
	return l
}

// next returns the next line; io.EOF at the end.
func (l *lines) next(ctx context.Context) (string, error) {
	for want := l.want; ; {
		select {
		case want <- struct{}{}:
			want = nil
		case got, ok := <-l.got:
			if !ok {
				return "", io.EOF
			}
			return got.text, got.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// discard forgets what was typed on a terminal and has not been read.
func (l *lines) discard() error {
	if !l.terminal {
		return nil
	}
	err := discard(l.file)
	select {
	case <-l.got: // it was asked for earlier, and given up
	default:
	}
	return err
}

// movesCursor reports a terminal that obeys escape sequences, by its name.
func movesCursor() bool {
	name := os.Getenv("TERM")
	return name != "dumb" && (name != "" || runtime.GOOS == "windows")
}

// newEditor returns an editor for a person at a terminal; nil where lines are read as
// they come: from a pipe, on a terminal that cannot move its cursor, or where what is
// shown goes elsewhere.
func newEditor(in io.Reader, out io.Writer) *lineedit.Editor {
	f, ok := in.(*os.File)
	screen, seen := out.(terminal.File)
	if !ok || !seen || !term.IsTerminal(int(f.Fd())) || !terminal.Is(out) || !movesCursor() {
		return nil
	}
	s := lineedit.Screen{
		In: f, Out: out,
		Discard: func() error { return discard(f) },
		Raw:     func() (func() error, error) { return raw(f, screen) },
		Size: func() (int, int) {
			columns, rows, err := term.GetSize(int(screen.Fd()))
			if err != nil || columns < 1 || rows < 1 {
				return 80, 24
			}
			return columns, rows
		},
	}
	addSignals(&s)
	return lineedit.New(s)
}

// signals turn Ctrl-C into the end of what goes on.
type signals struct {
	c      chan os.Signal
	done   chan struct{}
	wait   sync.WaitGroup
	cancel context.CancelFunc // of the whole program

	mu     sync.Mutex
	answer context.CancelFunc // of the answer that is under way
}

// watch returns a context that ends with the first Ctrl-C when no answer is
// under way, or with a signal to end.
func watch(ctx context.Context) (context.Context, *signals) {
	ctx, cancel := context.WithCancel(ctx)
	s := &signals{c: make(chan os.Signal, 4), done: make(chan struct{}), cancel: cancel}
	signal.Notify(s.c, os.Interrupt, syscall.SIGTERM)
	s.wait.Go(func() {
		for {
			select {
			case sig := <-s.c:
				s.take(sig)
			case <-s.done:
				return
			}
		}
	})
	return ctx, s
}

func (s *signals) take(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil && sig == os.Interrupt {
		s.answer()
		s.answer = nil // the next one leaves
		return
	}
	s.cancel()
	signal.Stop(s.c) // and the one after that has its usual effect
}

// during lets Ctrl-C end what f does, and not the program.
func (s *signals) during(ctx context.Context, f func(context.Context) error) (err error, interrupted bool) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.answer = cancel
	s.mu.Unlock()
	err = f(inner)
	s.mu.Lock()
	s.answer = nil
	s.mu.Unlock()
	return err, inner.Err() != nil && errors.Is(err, context.Canceled)
}

func (s *signals) stop() {
	signal.Stop(s.c)
	close(s.done)
	s.wait.Wait()
	s.cancel()
}
