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
	state   escState
	pending []byte // an incomplete CSI sequence
	partial []byte // an incomplete UTF-8 character
	out     []byte
}

type escState int

const (
	escNone      escState = iota
	escStart              // after ESC
	escCSI                // ESC [ …
	escString             // ESC ] … or another string, up to BEL or ST
	escStringEnd          // ESC within a string
	escCharset            // ESC ( and the like: one more character
)

const maxCSI = 64 // bytes; colours are shorter

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
		s.rune(r, text[:size])
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
	s.state, s.pending, s.partial, s.styled, s.midLine = escNone, s.pending[:0], nil, false, false
	if end == "" {
		return nil
	}
	_, err := io.WriteString(s.w, end)
	return err
}

func (s *Filter) rune(r rune, raw []byte) {
	switch s.state {
	case escNone:
		s.plain(r, raw)
	case escStart:
		s.state = escNone
		switch {
		case r == '[':
			s.state, s.pending = escCSI, append(s.pending[:0], "\x1b["...)
		case strings.ContainsRune("]PX^_", r):
			s.state = escString
		case strings.ContainsRune("()*+-./ #%", r):
			s.state = escCharset
		case r == 0x1b:
			s.state = escStart
		}
	case escCharset:
		s.state = escNone
	case escCSI:
		s.csi(r, raw)
	case escString:
		switch r {
		case 0x07, 0x9c, 0x18, 0x1a:
			s.state = escNone
		case 0x1b:
			s.state = escStringEnd
		case '\n':
			// Nobody writes a title of two lines: the end was forgotten, and the
			// rest of the output must not vanish with it.
			s.state = escNone
			s.plain(r, raw)
		}
	case escStringEnd:
		s.state = escNone
		if r != '\\' {
			s.state = escStart
			s.rune(r, raw)
		}
	}
}

func (s *Filter) plain(r rune, raw []byte) {
	switch {
	case r == 0x1b:
		s.state = escStart
	case r == 0x9b:
		s.state, s.pending = escCSI, append(s.pending[:0], "\x1b["...)
	case r == 0x90 || r == 0x98 || r == 0x9d || r == 0x9e || r == 0x9f:
		s.state = escString
	case r == '\n' || r == '\t' || r == '\r' || r == '\b' && !s.strict:
		s.out = append(s.out, raw...)
		s.midLine = r != '\n'
	case r < 0x20 || (r >= 0x7f && r < 0xa0):
	default:
		s.midLine = true
		switch {
		case deceptive(r) && r > 0xffff:
			s.out = fmt.Appendf(s.out, `\U%08x`, r)
		case deceptive(r):
			s.out = fmt.Appendf(s.out, `\u%04x`, r)
		case r == utf8.RuneError:
			s.out = append(s.out, "\uFFFD"...)
		default:
			s.out = append(s.out, raw...)
		}
	}
}

func (s *Filter) csi(r rune, raw []byte) {
	switch {
	case r >= 0x40 && r <= 0x7e:
		parameters := s.pending[2:]
		keep := strings.Trim(string(parameters), "0123456789;:") == ""
		if keep && !s.strict && (r == 'K' || r == 'm' && s.colour) {
			s.out = append(append(s.out, s.pending...), raw...)
			if r == 'm' {
				s.styled = strings.Trim(string(parameters), "0") != ""
			}
		}
		s.endCSI()
	case r < 0x20 || r > 0x7e:
		s.endCSI()
		s.plain(r, raw)
	case len(s.pending) < maxCSI:
		s.pending = append(s.pending, raw...)
	default:
		// Too long to be a colour: swallow it to its end.
		s.pending[len(s.pending)-1] = '?'
	}
}

// deceptive: characters that turn the direction of text or cannot be seen. Code
// could look harmless with them. The joiners U+200C and U+200D are not among them:
// Persian and emojis need them.
func deceptive(r rune) bool {
	return r >= 0xe0000 && r <= 0xe007f || r == 0x200b || r == 0x200e || r == 0x200f || r == 0x061c || r >= 0x202a && r <= 0x202e ||
		r >= 0x2060 && r <= 0x2069 || r == 0xfeff
}

func (s *Filter) endCSI() { s.state, s.pending = escNone, s.pending[:0] }

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
