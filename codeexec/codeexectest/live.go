package codeexectest

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// collect is what comes back of the files that code leaves.
func (s suite) collect(t *testing.T) {
	e := s.open(t)
	inputs := []codeexec.File{{Name: "same.txt", Content: []byte("same")}, {Name: "changed.txt", Content: []byte("1")}, {Name: "sub/in", Content: []byte("2")}}
	collect := func(code string, patterns ...string) codeexec.CodeExecutionResult {
		t.Helper()
		return runIn(t, e, codeexec.CodeExecutionInput{
			CodeBlocks: []codeexec.CodeBlock{block("bash", code)}, ExecutionID: "collect", InputFiles: inputs, Collect: patterns,
		})
	}
	t.Run("files that are new or changed", func(t *testing.T) {
		r := collect(`echo more >> changed.txt; mkdir -p a/b .hidden __pycache__; printf 'x,y\n1,2\n' > a/b/new.csv; : > empty
echo {} > metadata.json; echo x > .hidden/x; echo x > __pycache__/x; mkfifo pipe; ln -s /etc/passwd link; ln -s /etc folder; ln -s changed.txt inside
truncate -s 5000000 large.bin; printf x > 'back\slash'; printf x > "$(printf 'esc\033[31m')"; printf x > "$(printf '\377')"`, "**")
		got := map[string]string{}
		for _, f := range r.OutputFiles {
			got[f.Name] = fmt.Sprintf("%d of %d %v %s", len(f.Content), f.SizeBytes, f.Truncated, f.MIMEType)
		}
		same(t, "collected", got, map[string]string{
			"a/b/new.csv": "8 of 8 false text/csv", "changed.txt": "6 of 6 false text/plain; charset=utf-8", "empty": "0 of 0 false text/plain; charset=utf-8",
			"large.bin": "4194304 of 5000000 true application/octet-stream", "metadata.json": "3 of 3 false application/json",
		})
		if !r.Truncated || r.Limit != "output" || r.Outcome != codeexec.OutcomeOK {
			t.Errorf("truncated %v, limit %q, %s", r.Truncated, r.Limit, r.Outcome)
		}
		if !slices.Contains(r.Left, codeexec.LeftFile{Name: "large.bin", Reason: "cut after 4194304 of 5000000 bytes"}) {
			t.Errorf("left out: %q", r.Left)
		}
		if text := r.String(); !strings.Contains(text, "[Left out: large.bin: cut after 4194304 of 5000000 bytes]\n") {
			t.Errorf("the model reads %q", text)
		}
	})
	t.Run("nothing that was there", func(t *testing.T) {
		if r := collect("cat same.txt", "**", ".hidden/*"); len(r.OutputFiles) != 0 || r.Truncated || len(r.Left) > 0 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("what the patterns mean, also of code that fails", func(t *testing.T) {
		r := collect("printf SAME > same.txt; echo x > no.txt; echo y > .env; exit 3", "s*.txt", ".env", "sub/none")
		if len(r.OutputFiles) != 2 || r.OutputFiles[0].Name != ".env" || string(r.OutputFiles[1].Content) != "SAME" || r.ExitCode != 3 || r.Truncated {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("as many as the limit", func(t *testing.T) {
		if r := collect("for i in $(seq 120); do echo $i > f$i; done", "f*"); len(r.OutputFiles) != codeexec.DefaultMaxFiles || !r.Truncated || len(r.Left) != 20 {
			t.Errorf("%d files, truncated %v, left %q", len(r.OutputFiles), r.Truncated, r.Left)
		}
	})
	t.Run("patterns that lead out", func(t *testing.T) {
		for _, bad := range []string{"../*", "/etc/*", "a/../../b", "[", "", "$OUTPUT_DIR/*"} {
			_, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "print('ran')", Collect: []string{bad}})
			wantCode(t, bad, err, cubby.CodeInvalidArgument)
		}
	})
	t.Run("a folder that code has replaced", func(t *testing.T) {
		if r := collect(`d=$PWD; cd /; mv "$d" "$d.old" && ln -s /etc "$d"; true`, "**"); len(r.OutputFiles) != 0 {
			t.Errorf("got %d files, such as %s", len(r.OutputFiles), r.OutputFiles[0].Name)
		}
	})
}
