package terminal

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// pieces are what escape codes are made of, and what may come in between. Carriage
// returns and backspaces are not among them: a terminal obeys them, and CleanText
// shows what they lead to.
var pieces = []string{
	"a", "é", "\n", "\t", "\x07", "\x00", "\x0e", "\x18", "\x1a", "\x7f", "\x1b", "\x1b", "[", "]", "P", "X", "^", "_", `\`, "(", "$", "%", "!", " ",
	"0", "1;", "?", "m", "K", "B", "~", "\u0085", "\u0090", "\u0098", "\u009b", "\u009c", "\u009d", "\u009e", "\u009f", "\u00a0",
}

// TestModelAndPersonReadTheSame: what is text and what is an escape code does not
// depend on who reads.
func TestModelAndPersonReadTheSame(t *testing.T) {
	var all []string
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				all = append(all, a+b+c+"z", "\x1b"+a+b+c+"z", "\x1b["+a+b+c+"z", "\x1b]"+a+b+c+"z\x07z")
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range random.IntN(20) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		all = append(all, b.String())
	}
	differ := 0
	for _, in := range all {
		if person, model := strict(in), codeexec.CleanText(in); person != model {
			if differ++; differ <= 20 {
				t.Errorf("%q: a person reads %q, a model reads %q", in, person, model)
			}
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d inputs are read differently", differ, len(all))
	}
}

func FuzzModelAndPersonReadTheSame(f *testing.F) {
	for _, s := range pieces {
		f.Add("\x1b" + s + "z")
		f.Add("\x1b[1" + s + "z")
		f.Add("\x1b]0" + s + "z\x1b\\z")
	}
	f.Fuzz(func(t *testing.T, in string) {
		if !utf8.ValidString(in) || strings.ContainsAny(in, "\r\b") || strings.ContainsFunc(in, deceptive) {
			t.Skip("here they differ on purpose")
		}
		if person, model := strict(in), codeexec.CleanText(in); person != model {
			t.Errorf("a person reads %q, a model reads %q", person, model)
		}
	})
}

func strict(in string) string {
	var out bytes.Buffer
	_, _ = Strict(&out).Write([]byte(in)) // a buffer takes all
	return out.String()
}
