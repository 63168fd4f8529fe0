package lineedit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
)

// memory is a history.
type memory []string

func (m *memory) Lines() []string { return *m }
func (m *memory) Add(line string) { *m = append(*m, line) }

// screen is a terminal that understands what the editor writes, and fails the test for
// anything else. It wraps rows and scrolls as terminals do.
type screen struct {
	t             *testing.T
	width, height int
	cells         [][]string // a wide character is followed by an empty cell
	row, column   int
}

var sequence = regexp.MustCompile(`^\x1b\[(\??)([0-9]*)([A-Za-z])`)

func newScreen(t *testing.T, width, height int) *screen {
	s := &screen{t: t, width: width, height: height}
	for range height {
		s.cells = append(s.cells, make([]string, width))
	}
	return s
}

func (s *screen) Write(b []byte) (int, error) {
	for text := string(b); text != ""; {
		if m := sequence.FindStringSubmatch(text); m != nil {
			s.obey(m[1]+m[3], m[2])
			text = text[len(m[0]):]
			continue
		}
		cluster, rest, width, _ := uniseg.FirstGraphemeClusterInString(text, -1)
		text = rest
		switch cluster {
		case "\r":
			s.column = 0
		case "\n":
			s.down()
		case "\r\n":
			s.column = 0
			s.down()
		default:
			if cluster[0] < ' ' {
				s.t.Errorf("the terminal got %q", cluster)
			}
			if s.column+width > s.width {
				s.column = 0
				s.down()
			}
			s.cells[s.row][s.column] = cluster
			for i := 1; i < width; i++ {
				s.cells[s.row][s.column+i] = ""
			}
			s.column += width
		}
	}
	return len(b), nil
}

func (s *screen) down() {
	if s.row++; s.row == s.height {
		s.cells = append(s.cells[1:], make([]string, s.width))
		s.row--
	}
}

// resize changes the width, and wraps the rows that are too long for it, as most terminals
// do.
func (s *screen) resize(width int) {
	var all [][]string
	row, column := 0, 0
	for i, cells := range s.cells {
		used := width
		for j, c := range cells {
			if c != "" {
				used = max(used, j+uniseg.StringWidth(c))
			}
		}
		if i == s.row {
			row, column = len(all)+s.column/width, s.column%width
			used = max(used, s.column+1)
		}
		cells = append(cells, make([]string, used+width)...)
		for j := 0; j < used; j += width {
			all = append(all, slices.Clone(cells[j:j+width]))
		}
	}
	// What is below the cursor makes room for what was wrapped.
	more := max(row+1-s.height, 0)
	for len(all) < more+s.height {
		all = append(all, make([]string, width))
	}
	s.width, s.cells, s.row, s.column = width, all[more:more+s.height], row-more, column
}

func (s *screen) obey(command, number string) {
	n, _ := strconv.Atoi(number)
	switch command {
	case "A":
		s.row = max(s.row-n, 0)
	case "C":
		s.column = min(s.column+n, s.width-1)
	case "K":
		clear(s.cells[s.row][s.column:])
	case "J":
		clear(s.cells[s.row][s.column:])
		for _, row := range s.cells[s.row+1:] {
			clear(row)
		}
	case "H":
		s.row, s.column = 0, 0
	case "?h", "?l":
	default:
		s.t.Errorf("the terminal is told, or asked, %s%s", number, command)
	}
}

// text is what is to be seen, with | where the cursor is.
func (s *screen) text() string {
	var rows []string
	for i, cells := range s.cells {
		var b strings.Builder
		for j := 0; j < s.width; j++ {
			if i == s.row && j == s.column {
				b.WriteByte('|')
			}
			c := cells[j]
			switch {
			case c != "":
				b.WriteString(c)
				j += max(uniseg.StringWidth(c)-1, 0)
			default:
				b.WriteByte(' ')
			}
		}
		rows = append(rows, strings.TrimRight(b.String(), " "))
	}
	return strings.Trim(strings.Join(rows, "\n"), "\n")
}

// typed returns an editor for which these bytes are typed, cut where pieces end.
func typed(out io.Writer, width, height int, pieces ...string) *Editor {
	r, w := io.Pipe()
	go func() {
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
		}
		w.Close()
	}()
	return New(Screen{
		In: r, Out: out,
		Raw:  func() (func() error, error) { return func() error { return nil }, nil },
		Size: func() (int, int) { return width, height },
	})
}

func TestKeys(t *testing.T) {
	paste := func(s string) string { return pasteBegin + s + pasteEnd }
	for _, test := range []struct{ name, keys, want string }{
		{"plain", "abc\r", "abc"},
		{"a line feed", "abc\n", "abc"},
		{"moves", "bd\x1b[Dc\x01a\x05e\x1b[H\x1bOC\x06\x02B\r", "aBbcde"},
		{"deletions", "abcd\x7f\x1b[D\x1b[D\x04\x1b[3~X\r", "aX"},
		{"words", "one two three\x1bb\x1b[1;5D+\x1bf+\x1b\x7f.\r", "one . three"},
		{"cut and put back", "one two\x17\x01\x19\x0b!\r", "two!"},
		{"cut to the start", "one two\x1bb\x15\x05 \x19\r", "two one "},
		{"text behind a key that is not known", "a\x1b[1;2Rb\x1b[99;99~c\x1b[Zd\x1bOPe\x1bzf\x00g\r", "abcdefg"},
		{"an answer to a question that was not asked", "a\x1b[12;40Rb\x1b[?62;4cc\r", "abc"},
		{"a key in a meta key", "a\x1b\x1b[Db\r", "ba"},
		{"wide and joined characters", "日本\x7f語é\x1b[D\x1b[D\x7fX👩‍👩‍👧\x7f!\r", "X!語é"},
		{"lines", "a\x1b\rb\x1b[13;2uc\\\rd\r", "a\nb\nc\nd"},
		{"moves between lines", "abc\x1b\rx\x1b\rdef\x1b[A\x1b[AB\x1b[B\x1b[BE\r", "aBbc\nx\ndEef"},
		{"ends of a line", "abc\x1b\rdef\x01<\x1b[A\x05>\r", "abc>\n<def"},
		{"pasted lines", paste("def f():\r\n\treturn 1\rf()\n") + "why?\r", "def f():\n\treturn 1\nf()\nwhy?"},
		{"controls in a paste", paste("a\x1b[2Jb\x03c\x04d\x1b]0;title\x07e\x00\x9bf\u202eg") + "\r", `abcdef\u202eg`},
		{"the end of a paste in a paste", paste("rm -rf /"+pasteEnd) + "\r", "rm -rf /"},
		{"controls among letters", "a\u202eb\u200bc\r", `a\u202eb\u200bc`},
		{"bytes that are no text", "a\xff\xfeb\r", "ab"},
		{"Ctrl-D deletes", "ab\x01\x04\r", "b"},
		{"also behind an escape", "ab\x01\x1b\x04\r", "b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, pieces := range [][]string{{test.keys}, strings.Split(test.keys, "")} {
				got, err := typed(newScreen(t, 30, 5), 30, 5, pieces...).Read(t.Context(), "> ", nil)
				if err != nil || got != test.want {
					t.Errorf("%q, %v, want %q", got, err, test.want)
				}
			}
			// A terminal's read ends anywhere.
			var bytes []string
			for i := range len(test.keys) {
				bytes = append(bytes, test.keys[i:i+1])
			}
			if got, err := typed(newScreen(t, 30, 5), 30, 5, bytes...).Read(t.Context(), "> ", nil); err != nil || got != test.want {
				t.Errorf("byte by byte: %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestEnds: what ends an input otherwise than by Enter, and that reading goes on.
func TestEnds(t *testing.T) {
	s := newScreen(t, 20, 10)
	e := typed(s, 20, 10, "abc\x03", "\x03", "next\r\x04", "half")
	for i, want := range []struct {
		text string
		err  error
	}{{"abc", ErrInterrupted}, {"", ErrInterrupted}, {"next", nil}, {"", io.EOF}, {"", io.EOF}, {"", io.EOF}} {
		got, err := e.Read(t.Context(), "> ", nil)
		if got != want.text || !errors.Is(err, want.err) {
			t.Errorf("%d: %q, %v, want %q, %v", i, got, err, want.text, want.err)
		}
	}
	if got, want := s.text(), "> abc^C\n> ^C\n> next\n>\n> half\n>\n|"; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w := io.Pipe()
	defer w.Close()
	restored := false
	e = New(Screen{
		In: r, Out: s, Size: func() (int, int) { return 20, 10 },
		Raw: func() (func() error, error) { return func() error { restored = true; return nil }, nil },
	})
	if _, err := e.Read(ctx, "> ", nil); !errors.Is(err, context.Canceled) || !restored {
		t.Errorf("%v, restored: %v", err, restored)
	}
}

func TestHistory(t *testing.T) {
	const back, forth = "\x1b[A", "\x1b[B"
	for _, test := range []struct{ name, keys, want string }{
		{"the last", back + "\r", "four\nlines"},
		{"through lines", back + back + back + "\r", "three \\u202e"},
		{"and back", "draft" + back + "\x10\x10" + "\x0e\x0e\x0e!" + "\r", "draft!"},
		{"changed", "\x10\x10!\r", `three \u202e!`},
		{"no further than the first", strings.Repeat("\x10", 20) + "\r", "one"},
		{"search", "\x12t\r", "three \\u202e"},
		{"search on", "\x12t\x12\r", "two"},
		{"search of more", "\x12tw\x01>\r", ">two"},
		{"search in vain", "a\x12xyz\rb\r", "ab"},
		{"search that finds no more", "a\x12txyz\rb\r", "ab"},
		{"search of what was changed", "\x10\x10!\x12thr\r", "three \\u202e"},
		{"search given up", "a\x12t\x07b\r", "ab"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &memory{"one", "two", "three \u202e", "four\nlines"}
			got, err := typed(newScreen(t, 30, 5), 30, 5, test.keys).Read(t.Context(), "> ", h)
			if err != nil || got != test.want {
				t.Errorf("%q, %v, want %q", got, err, test.want)
			}
			if all := h.Lines(); all[len(all)-1] != got || len(all) != 5 {
				t.Errorf("%q", all)
			}
		})
	}
}

// typeKeys presses keys, and draws after each.
func typeKeys(t *testing.T, l *line, typed string) {
	t.Helper()
	l.draw()
	for _, c := range strings.Split(typed, "") {
		for l.e.keys.add([]byte(c)); ; {
			k, ok := l.e.keys.next()
			if !ok {
				break
			}
			if _, err := l.press(k); err != nil {
				t.Fatal(err)
			}
		}
		l.draw()
	}
}

// TestScreen: what is seen is what is typed, also at the bottom of a small window whose
// lines above stay as they are.
func TestScreen(t *testing.T) {
	long := "the quick brown fox jumps over the lazy dog"
	for _, test := range []struct{ name, keys, want string }{
		{"typing at the bottom", "hello", "2\n3\n4\n5\n> hello|"},
		{"a long line", long, "4\n5\n> the quick brown f\n  ox jumps over the\n   lazy dog|"},
		{"within it", long + "\x01\x1bf", "4\n5\n> the| quick brown f\n  ox jumps over the\n   lazy dog"},
		{"shortened", long + "\x15a", "4\n5\n> a|"},
		{"the last column", "0123456789abcdefg", "3\n4\n5\n> 0123456789abcdefg\n  |"},
		{"wide characters", "日本語日本語日本語日本", "3\n4\n5\n> 日本語日本語日本\n  語日本|"},
		{"between them", "日本語\x1b[D", "2\n3\n4\n5\n> 日本|語"},
		{"lines", "a\x1b\r\x1b\r" + pasteBegin + "\tb" + pasteEnd, "4\n5\n> a\n\n      b|"},
		{"more than the window", pasteBegin + "1\n2\n3\n4\n5\n6\n7\n8" + pasteEnd, "5\n  5\n  6\n  7\n  8|"},
		{"the start of it", pasteBegin + "1\n2\n3\n4\n5\n6\n7\n8" + pasteEnd + strings.Repeat("\x1b[A", 7), "5\n> 1|\n  2\n  3\n  4"},
		{"a clear screen", "ab\x0cc", "> abc|"},
		{"a search for more than a row", "\x12" + "quite a long text", "3\n4\n5\nsearch `quite a lon\n  g text`: |"},
		{"a search", "\x12w", "2\n3\n4\n5\nsearch `w`: t|wo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScreen(t, 20, 5)
			fmt.Fprint(s, "1\r\n2\r\n3\r\n4\r\n5\r\n")
			l := &line{
				e:      &Editor{screen: Screen{Out: s, Size: func() (int, int) { return 20, 5 }}},
				prompt: "> ", old: []string{"one", "two"}, place: 2,
			}
			typeKeys(t, l, test.keys)
			if got := s.text(); got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestResize: in a window of another width the text is shown as if it had always been of
// that width, and what stands above it stays.
func TestResize(t *testing.T) {
	for _, test := range []struct {
		name, keys string
		widths     []int
		want       string
	}{
		{"narrower", "the quick brown fox", []int{12}, "3\n4\n5\n> the quick\n   brown fo\n  x|"},
		{"much narrower", "the quick brown fox jumps", []int{8}, "5\n  uick\n  brown\n   fox\n  jumps\n  |"},
		{"wider", "the quick brown fox jumps", []int{40}, "2\n3\n4\n5\n> the quick brown fox jumps|"},
		{"to and fro", "the quick brown fox jumps", []int{9, 17, 12, 30}, "5\n> the quick brown fox jumps|"},
		{"with the cursor within", "the quick brown fox\x01\x1bf\x1bf", []int{12}, "3\n4\n5\n> the quick\n  | brown fo\n  x"},
		{"wide characters", "日本語日本語日", []int{9}, "3\n4\n5\n> 日本語\n  日本語\n  日|"},
		{"lines", "abc\x1b\rdefghijklmnop", []int{10}, "3\n4\n5\n> abc\n  defghij\n  klmnop|"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScreen(t, 20, 6)
			fmt.Fprint(s, "1\r\n2\r\n3\r\n4\r\n5\r\n")
			l := &line{e: &Editor{screen: Screen{Out: s, Size: func() (int, int) { return s.width, s.height }}}, prompt: "> "}
			typeKeys(t, l, test.keys)
			for _, width := range test.widths {
				s.resize(width)
				l.draw()
			}
			if got := s.text(); got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestSuspend: Ctrl-Z hands the terminal back as it was, and what was typed is there when
// the program goes on.
func TestSuspend(t *testing.T) {
	s := newScreen(t, 20, 10)
	r, w := io.Pipe()
	defer w.Close()
	resumed := make(chan os.Signal, 1)
	raw := 0
	e := New(Screen{
		In: r, Out: s,
		Raw:   func() (func() error, error) { raw++; return func() error { raw--; return nil }, nil },
		Size:  func() (int, int) { return s.width, s.height },
		Watch: func() (_, _ <-chan os.Signal, _ func()) { return nil, resumed, func() {} },
		Suspend: func() error {
			if raw != 0 {
				t.Error("it stops with a terminal in raw mode")
			}
			fmt.Fprint(s, "shell\r\n$ ")
			resumed <- nil
			return nil
		},
	})
	go func() { _, _ = io.WriteString(w, "abc\x1b[D\x1ax\r") }()
	if got, err := e.Read(t.Context(), "> ", nil); got != "abxc" || err != nil || raw != 0 {
		t.Errorf("%q, %v, %d times raw", got, err, raw)
	}
	if got, want := s.text(), "> abc^Z\nshell\n> abxc\n|"; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	// Somebody else stopped the program, and a shell has changed the terminal.
	go func() {
		_, _ = io.WriteString(w, "de\x00")
		raw = 0
		resumed <- nil
		_, _ = io.WriteString(w, "f\r")
	}()
	if got, err := e.Read(t.Context(), "> ", nil); got != "def" || err != nil || raw != 0 {
		t.Errorf("%q, %v, %d times raw", got, err, raw)
	}
}

// TestDiscard: what was typed before is no answer to what is asked then.
func TestDiscard(t *testing.T) {
	s := newScreen(t, 20, 10)
	r, w := io.Pipe()
	defer w.Close()
	flushed := false
	e := New(Screen{
		In: r, Out: s,
		Raw:     func() (func() error, error) { return func() error { return nil }, nil },
		Size:    func() (int, int) { return 20, 10 },
		Discard: func() error { flushed = true; return nil },
	})
	go func() { _, _ = io.WriteString(w, "one\ry\r") }()
	if got, err := e.Read(t.Context(), "> ", nil); got != "one" || err != nil {
		t.Fatal(got, err)
	}
	if err := e.Discard(); err != nil || !flushed {
		t.Error(err, flushed)
	}
	go func() { _, _ = io.WriteString(w, "n\r") }()
	if got, err := e.Read(t.Context(), "> ", nil); got != "n" || err != nil {
		t.Error(got, err)
	}
}

// FuzzEditor: whatever a terminal sends, the editor neither panics nor writes anything
// that its own screen does not know, and the text is one that can be shown.
func FuzzEditor(f *testing.F) {
	f.Add("abc\x1b[A\x12x\x17\x19日\u0301\x1b[200~a\r\nb\x1b[201~\x1b\r\x1b[D\x7f\x04", 20, 5)
	f.Add("\x1b[1;2R\x1bO\x1b[\x1b\x9b\xff", 3, 1)
	f.Fuzz(func(t *testing.T, keys string, width, height int) {
		width, height = 4+width&63, 1+height&15
		s := newScreen(t, width, height)
		text, err := typed(s, width, height, keys).Read(t.Context(), "> ", &memory{"one", "two\nlines"})
		if err != nil && !errors.Is(err, ErrInterrupted) && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if clean(text, true) != text {
			t.Errorf("%q", text)
		}
	})
}
