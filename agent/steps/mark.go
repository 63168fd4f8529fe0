package steps

import (
	"crypto/rand"
	"iter"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// newMark returns what begins the lines that a helper in the sandbox answers, so
// that what else is printed there is not taken for them.
func newMark() string { return "cubby-" + rand.Text() + " " }

// marked yields the lines of a result's stdout that begin with mark, without it.
func marked(r codeexec.CodeExecutionResult, mark string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, b := range r.Blocks {
			for line := range strings.Lines(b.Stdout) {
				if text, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), mark); ok && !yield(text) {
					return
				}
			}
		}
	}
}
