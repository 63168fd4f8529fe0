package codeexectest

import (
	"context"
	"testing"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// output is what OnOutput is told.
func (s suite) output(t *testing.T) {
	e := s.open(t)
	t.Run("as it comes, and in the callback the executor can be used", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		inner := codeexec.CodeExecutionResult{}
		_, err := e.ExecuteCode(ctx, codeexec.CodeExecutionInput{
			CodeBlocks:  []codeexec.CodeBlock{block("python", "print('begun', flush=True)\nimport time\nwhile True: time.sleep(1)")},
			ExecutionID: "suite",
			OnOutput: func(string, string) {
				if cancel(); inner.Output == "" {
					inner = run(t, e, block("bash", "echo inner"))
				}
			},
		})
		wantCode(t, "ExecuteCode", err, cubby.CodeCanceled)
		wantOutput(t, inner, "inner\n")
	})
	t.Run("all of each stream", func(t *testing.T) {
		told := map[string]string{}
		r := runIn(t, e, codeexec.CodeExecutionInput{
			CodeBlocks: []codeexec.CodeBlock{
				block("bash", "echo 1; echo 2 >&2; printf 'a\\377b\\303'"), block("python", "import sys\nprint('ü漢🎉' * 50000)\nsys.stderr.write('end')"),
			},
			ExecutionID: "suite",
			OnOutput: func(stream, text string) {
				if text == "" || !utf8.ValidString(text) {
					t.Errorf("%s: %.100q", stream, text)
				}
				told[stream] += text
			},
		})
		want := map[string]string{}
		for _, b := range r.Blocks {
			want["stdout"] += b.Stdout
			want["stderr"] += b.Stderr
		}
		if told["stdout"] != want["stdout"] || told["stderr"] != want["stderr"] || want["stderr"] != "2\nend" || len(told) != 2 {
			t.Errorf("told %d and %d bytes, kept %d and %d", len(told["stdout"]), len(told["stderr"]), len(want["stdout"]), len(want["stderr"]))
		}
	})
}
