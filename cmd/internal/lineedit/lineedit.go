// Package lineedit lets a person type on a terminal: a question of one line or of many,
// edited with the keys of a shell, with a history that can be searched. It asks the
// terminal nothing, so that one that does not answer is as good as any other, and it
// draws by moves that are relative to where it began.
package lineedit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// ErrInterrupted is Ctrl-C. What had been typed is not in the history.
var ErrInterrupted = errors.New("interrupted")

// History is what was typed before, the oldest first.
type History interface {
	Lines() []string
	// Add adds what was typed.
	Add(line string)
}

// Screen is the terminal. What is below Size may be nil.
type Screen struct {
	In  io.Reader
	Out io.Writer
	// Raw has the terminal hand over each key as it comes, and restore undoes that.
	Raw func() (restore func() error, err error)
	// Size is the terminal's, in columns and rows.
	Size func() (columns, rows int)
	// Watch tells, until stop is called, that the size is another one, and that the
	// program goes on after it was stopped.
	Watch func() (resized, resumed <-chan os.Signal, stop func())
	// Suspend stops the program, as Ctrl-Z does to one that leaves its terminal alone.
	// It returns at once where there is no shell that could have the program go on.
	Suspend func() error
	// Discard forgets what was typed and has not been read.
	Discard func() error
}

// Editor reads what is typed. It is for one goroutine at a time. A read of its input
// cannot be called back, so there is one editor for each input.
type Editor struct {
	screen Screen
	want   chan struct{}
	got    chan input
	keys   keys
	ended  error // of the input

	resized, resumed <-chan os.Signal // nil where there is nothing to be told
}

type input struct {
	b   []byte
	err error
}

// New returns an editor. Its goroutine ends with the input.
func New(s Screen) *Editor {
	e := &Editor{screen: s, want: make(chan struct{}), got: make(chan input)}
	go func() {
		for range e.want {
			b := make([]byte, 4096)
			n, err := s.In.Read(b)
			e.got <- input{b[:n], err}
			if err != nil {
				return
			}
		}
	}()
	return e
}

// Read shows the prompt and returns what is typed up to Enter, which can have many
// lines. The history may be nil. Errors: [ErrInterrupted], with what had been typed;
// io.EOF for Ctrl-D on an empty line or for the end of the input; the context's, the
// terminal's.
func (e *Editor) Read(ctx context.Context, prompt string, h History) (text string, err error) {
	restore, err := e.screen.Raw()
	if err != nil {
		return "", fmt.Errorf("prepare the terminal: %w", err)
	}
	defer func() { err = errors.Join(err, restore()) }()
	if e.screen.Watch != nil {
		resized, resumed, stop := e.screen.Watch()
		e.resized, e.resumed = resized, resumed
		defer stop()
	}
	e.write(pasteOn)
	defer e.write(pasteOff)

	l := &line{e: e, prompt: prompt, history: h}
	if h != nil {
		l.old = h.Lines()
	}
	l.place = len(l.old)
	l.draw()
	for {
		k, ok := e.keys.next()
		if !ok {
			l.draw()
			resumed, err := e.fill(ctx)
			if err != nil {
				l.leave("")
				return "", err
			}
			if resumed {
				if err := l.resume(); err != nil {
					return "", err
				}
			}
			continue
		}
		if k.do == suspend {
			if err := l.suspend(ctx, restore); err != nil {
				return "", err
			}
			continue
		}
		done, err := l.press(k)
		switch {
		case errors.Is(err, ErrInterrupted):
			l.leave("^C")
			return l.text, err
		case err != nil:
			l.leave("")
			return "", err
		case done:
			l.leave("")
			if h != nil && strings.TrimSpace(l.text) != "" {
				h.Add(l.text)
			}
			return l.text, nil
		}
	}
}

func (e *Editor) write(s string) { _, _ = io.WriteString(e.screen.Out, s) } // who is not seen is not edited

// Discard forgets what was typed before now, which cannot be an answer to what is asked
// from now on.
func (e *Editor) Discard() error {
	var err error
	if e.screen.Discard != nil {
		err = e.screen.Discard()
	}
	select {
	case got := <-e.got:
		e.ended = got.err
	default:
	}
	e.keys = keys{}
	return err
}

// fill waits for more keys, for another size of the terminal, or until the program is
// resumed, which it reports.
func (e *Editor) fill(ctx context.Context) (resumed bool, err error) {
	if e.ended != nil {
		return false, e.ended
	}
	for want := e.want; ; {
		select {
		case want <- struct{}{}:
			want = nil
		case got := <-e.got:
			e.keys.add(got.b)
			if e.ended = got.err; len(got.b) > 0 {
				return false, nil
			}
			return false, got.err
		case <-e.resized:
			return false, nil
		case <-e.resumed:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// line is one text that is being typed.
type line struct {
	buffer
	e       *Editor
	prompt  string
	history History
	old     []string
	place   int    // in old; behind it is what is being typed
	draft   string // what was typed, while an old one is shown

	searching bool
	query     string
	found     int // in old; behind it if nothing was

	drawn bool
	above []string // the rows drawn above that of the cursor
	left  string   // what was drawn to the left of it
	width int      // of the window
	last  string
}

// press obeys a key and reports whether the text is done.
func (l *line) press(k key) (done bool, err error) {
	if l.searching && !l.search(k) {
		return false, nil
	}
	switch k.do {
	case insert:
		l.insert(clean(k.text, k.paste))
	case accept:
		// A backslash before Enter goes on in the next line.
		if before, ok := strings.CutSuffix(l.text, `\`); ok && l.at == len(l.text) {
			l.set(before + "\n")
			return false, nil
		}
		l.at = len(l.text)
		return true, nil
	case newline:
		l.insert("\n")
	case interrupt:
		return false, ErrInterrupted
	case endOfInput:
		if l.text == "" {
			return false, io.EOF
		}
		l.deleteTo(l.after(), false)
	case search:
		l.searching, l.query, l.found = true, "", len(l.old)
	case older:
		l.recall(l.place - 1)
	case newer:
		l.recall(l.place + 1)
	case up:
		if !l.vertical(-1) {
			l.recall(l.place - 1)
		}
	case down:
		if !l.vertical(1) {
			l.recall(l.place + 1)
		}
	case clearScreen:
		l.e.write("\x1b[H\x1b[2J")
		l.drawn, l.last = false, ""
	default:
		l.edit(k.do)
	}
	return false, nil
}

// edit obeys a key that moves or deletes.
func (l *line) edit(do action) {
	switch do {
	case left:
		l.at = l.before()
	case right:
		l.at = l.after()
	case wordLeft:
		l.at = l.wordBefore()
	case wordRight:
		l.at = l.wordAfter()
	case lineStart:
		l.at = l.startOfLine()
	case lineEnd:
		l.at = l.endOfLine()
	case deleteLeft:
		l.deleteTo(l.before(), false)
	case deleteRight:
		l.deleteTo(l.after(), false)
	case deleteWordLeft:
		l.deleteTo(l.blankBefore(), true)
	case deleteWordRight:
		l.deleteTo(l.wordAfter(), true)
	case deleteToStart:
		l.deleteTo(l.startOfLine(), true)
	case deleteToEnd:
		l.deleteTo(l.endOfLine(), true)
	case yank:
		l.insert(l.cut)
	}
}

// recall shows what was typed before.
func (l *line) recall(place int) {
	if place < 0 || place > len(l.old) {
		return
	}
	if l.place == len(l.old) {
		l.draft = l.text
	}
	l.place = place
	if place == len(l.old) {
		l.set(l.draft)
	} else {
		l.set(clean(l.old[place], true))
	}
}

// search obeys a key while the history is searched. It reports whether the key means
// what it does otherwise, too.
func (l *line) search(k key) bool {
	from := l.found
	switch k.do {
	case search:
	case insert:
		l.query += clean(k.text, false)
		from++
	case deleteLeft:
		b := buffer{text: l.query, at: len(l.query)}
		l.query = l.query[:b.before()]
		from = len(l.old)
	case cancel, interrupt:
		l.searching = false
		return false
	default:
		l.searching = false
		if !l.matches() {
			return k.do != accept // what is sent is what was seen
		}
		l.recall(l.found)
		return true
	}
	for i := min(from, len(l.old)) - 1; i >= 0 && l.query != ""; i-- {
		if strings.Contains(l.old[i], l.query) {
			l.found = i
			break
		}
	}
	return false
}

// matches reports whether what was found last has what is searched for now.
func (l *line) matches() bool {
	return l.query != "" && l.found < len(l.old) && strings.Contains(l.old[l.found], l.query)
}

// shown is what the screen shows: prompt, text and the place of the cursor.
func (l *line) shown() (prompt, text string, at int) {
	if !l.searching {
		return l.prompt, l.text, l.at
	}
	if l.matches() {
		text = clean(l.old[l.found], true)
	}
	at = max(strings.Index(text, l.query), 0)
	return "search `" + l.query + "`: ", text, at
}

// indent begins the rows below the first one.
const indent = "  "

// draw shows the text as it is now. What is larger than the screen is shown around the
// cursor.
func (l *line) draw() {
	width, height := l.e.screen.Size()
	prompt, text, at := l.shown()
	rows, row, column := layout(prompt, indent, text, at, max(width, 4))
	if most := max(height-1, 1); len(rows) > most {
		first := min(max(row-most/2, 0), len(rows)-most)
		rows, row = rows[first:first+most], row-first
	}
	width = max(width, 1)
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(r + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	move(&b, len(rows)-1-row, 'A')
	b.WriteByte('\r')
	move(&b, column, 'C')
	frame := b.String()
	if frame == l.last && width == l.width {
		return
	}
	l.last = frame
	top := l.top(width)
	if l.drawn && width != l.width {
		top += "\x1b[J" // a terminal remembers which rows it has wrapped, until they are erased
	}
	l.width = width
	l.e.write(top + frame)
	l.drawn, l.above, l.left = true, rows[:row], leftOf(rows[row], column)
}

// top moves the cursor to where the text begins, in a window of that width. Most
// terminals wrap rows that a window has become too narrow for.
func (l *line) top(width int) string {
	if !l.drawn {
		return ""
	}
	up := 0
	for _, row := range l.above {
		wraps, _ := wrap(row, width)
		up += wraps + 1
	}
	wraps, used := wrap(l.left, width)
	if up += wraps; used == width {
		up++ // the cursor stands at the beginning of the row below
	}
	var b strings.Builder
	b.WriteByte('\r')
	move(&b, up, 'A')
	return b.String()
}

// wrap returns how often a terminal of that width wraps a row, and how many columns of
// the last one it takes.
func wrap(row string, width int) (wraps, used int) {
	for state := -1; row != ""; {
		var size int
		_, row, size, state = uniseg.FirstGraphemeClusterInString(row, state)
		if used+size > width && used > 0 {
			wraps, used = wraps+1, 0
		}
		used += size
	}
	return wraps, used
}

// leftOf returns the part of a row that takes so many columns.
func leftOf(row string, columns int) string {
	at := 0
	for used, state := 0, -1; at < len(row); {
		var cluster string
		var size int
		cluster, _, size, state = uniseg.FirstGraphemeClusterInString(row[at:], state)
		if used += size; used > columns {
			break
		}
		at += len(cluster)
	}
	return row[:at]
}

// suspend stops the program with the terminal as it was found, and goes on with the text
// when the program does.
func (l *line) suspend(ctx context.Context, restore func() error) error {
	if l.e.screen.Suspend == nil {
		return nil
	}
	at := l.at
	l.leave("^Z")
	l.at = at
	l.e.write(pasteOff)
	if err := restore(); err != nil {
		return err
	}
	if err := l.e.screen.Suspend(); err != nil {
		return fmt.Errorf("stop for Ctrl-Z: %w", err)
	}
	// The signal that stops may come a moment after it was sent, and the one that has
	// the program go on a moment after it does. None comes where there is no shell.
	for range 2 {
		select {
		case <-l.e.resumed:
			return l.resume()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resumeWait):
		}
	}
	return l.resume()
}

const resumeWait = 100 * time.Millisecond

// resume goes on below what others have written, on a terminal that they have left in a
// mode of their own.
func (l *line) resume() error {
	if _, err := l.e.screen.Raw(); err != nil {
		return fmt.Errorf("prepare the terminal: %w", err)
	}
	l.e.write(pasteOn + "\r")
	l.drawn, l.last = false, ""
	return nil
}

// leave shows the text a last time, with its whole end, and begins a line below it.
func (l *line) leave(mark string) {
	l.searching, l.at = false, len(l.text)
	l.last = ""
	l.draw()
	l.e.write(mark + "\r\n")
}

func move(b *strings.Builder, n int, direction byte) {
	if n > 0 {
		fmt.Fprintf(b, "\x1b[%d%c", n, direction)
	}
}

// clean takes from a text what a terminal would obey, or what cannot be seen there:
// what is sent is what was seen. Line ends stay where there may be several.
func clean(text string, lines bool) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if !lines {
		text = strings.ReplaceAll(text, "\n", " ")
	}
	var b strings.Builder
	_, _ = terminal.Strict(&b).Write([]byte(text)) // a builder takes all
	return b.String()
}
