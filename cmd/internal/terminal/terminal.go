// Package terminal keeps what comes from a sandbox or a model from obeying itself
// on a terminal, and shows there that something goes on.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby/internal/escape"
)

// File is what may be a terminal: an *os.File, or what stands for one.
type File interface{ Fd() uintptr }

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Sanitize returns a writer that takes from text what a terminal would obey:
// titles, clipboards, cursor moves, queries that answer as if typed. Characters
// that turn the direction of text or cannot be seen are written as \u202e.
//
// Colours and "erase this line" stay (without colours, NO_COLOR, only the latter),
// and so do carriage returns and backspaces, which progress bars live on: they lead
// no further than to the beginning of the line that the text itself has begun. Who
// goes on to write in his own name calls [Filter.End] first, and begins a line.
//
// Where no terminal listens, every byte passes as it is.
func Sanitize(w io.Writer, terminal bool) io.Writer {
	if !terminal {
		return w
	}
	return &Filter{w: w, colour: os.Getenv("NO_COLOR") == ""}
}

// Strict returns the same for text of which nothing but line ends, tabs and
// carriage returns is wanted.
func Strict(w io.Writer) *Filter { return &Filter{w: w, strict: true} }

// Filter is a filter that may be cut anywhere: its state is a few bytes,
// whatever the text does.
type Filter struct {
	w      io.Writer
	colour bool
	strict bool // no sequence at all

	styled  bool // the last colour that passed was no return to none
	midLine bool // the last character that passed did not end its line
	parser  escape.Parser
	partial []byte // an incomplete UTF-8 character
	out     []byte
}

// Write filters p. It reports all of p as written.
func (s *Filter) Write(p []byte) (int, error) {
	s.out = s.out[:0]
	text := p
	if len(s.partial) > 0 {
		text = append(s.partial, p...)
		s.partial = nil
	}
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 && !utf8.FullRune(text) {
			s.partial = append([]byte(nil), text...)
			break
		}
		s.rune(r)
		text = text[size:]
	}
	if _, err := s.w.Write(s.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// End ends what the text has begun: a sequence or character that is not whole is
// forgotten, colours are off, and the cursor is at the beginning of a line.
func (s *Filter) End() error {
	end := ""
	if s.styled {
		end = "\x1b[0m"
	}
	if s.midLine {
		end += "\n"
	}
	s.parser, s.partial, s.styled, s.midLine = escape.Parser{}, nil, false, false
	if end == "" {
		return nil
	}
	_, err := io.WriteString(s.w, end)
	return err
}

func (s *Filter) rune(r rune) {
	switch s.parser.Next(r) {
	case escape.Text:
		s.text(r)
	case escape.Control:
		if r == '\n' || r == '\t' || r == '\r' || r == '\b' && !s.strict {
			s.out = append(s.out, byte(r))
			s.midLine = r != '\n'
		}
	case escape.ControlSequence:
		s.sequence(r)
	}
}

func (s *Filter) text(r rune) {
	s.midLine = true
	switch {
	case deceptive(r) && r > 0xffff:
		s.out = fmt.Appendf(s.out, `\U%08x`, r)
	case deceptive(r):
		s.out = fmt.Appendf(s.out, `\u%04x`, r)
	default:
		s.out = utf8.AppendRune(s.out, r)
	}
}

func (s *Filter) sequence(r rune) {
	parameters, whole := s.parser.Parameters()
	digits := whole && strings.Trim(string(parameters), "0123456789;:") == ""
	if !digits || s.strict || r != 'K' && (r != 'm' || !s.colour) {
		return
	}
	s.out = append(append(append(s.out, "\x1b["...), parameters...), byte(r))
	if r == 'm' {
		s.styled = strings.Trim(string(parameters), "0") != ""
	}
}

// deceptive: characters that turn the direction of text or cannot be seen. Code
// could look harmless with them. The joiners U+200C and U+200D are not among them:
// Persian and emojis need them.
func deceptive(r rune) bool {
	return r >= 0xe0000 && r <= 0xe007f || r == 0x200b || r == 0x200e || r == 0x200f || r == 0x061c || r >= 0x202a && r <= 0x202e ||
		r >= 0x2060 && r <= 0x2069 || r == 0xfeff
}

// Spinner shows on a terminal that something goes on, until there is text.
type Spinner struct {
	mu      sync.Mutex
	w       io.Writer
	message string
	shown   bool
	stopped bool
	stop    chan struct{}
	done    sync.WaitGroup
}

const (
	spinnerDelay = 300 * time.Millisecond
	spinnerStep  = 100 * time.Millisecond
)

// NewSpinner starts one; w is nil where no terminal watches.
func NewSpinner(w io.Writer, message string) *Spinner {
	s := &Spinner{w: w, message: message, stop: make(chan struct{})}
	if w == nil {
		s.stopped = true
		return s
	}
	s.done.Go(s.turn)
	return s
}

func (s *Spinner) turn() {
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	wait := time.NewTimer(spinnerDelay)
	defer wait.Stop()
	for i := 0; ; i++ {
		select {
		case <-s.stop:
			return
		case <-wait.C:
		}
		s.mu.Lock()
		if !s.stopped {
			_, _ = io.WriteString(s.w, "\r"+string(frames[i%len(frames)])+" "+s.message+"\x1b[K") // a lost frame is no loss
			s.shown = true
		}
		s.mu.Unlock()
		wait.Reset(spinnerStep)
	}
}

// Say changes the message.
func (s *Spinner) Say(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.message = message
}

// Stop clears the spinner for good and waits for it. It may be called often.
func (s *Spinner) Stop() {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.stopped = true
	if s.shown {
		_, _ = io.WriteString(s.w, "\r\x1b[K")
	}
	close(s.stop)
	s.mu.Unlock()
	s.done.Wait()
}
