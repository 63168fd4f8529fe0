// Package codeexectest is the suite that every code executor and every engine of
// workspaces passes. A test of a backend is one call:
//
//	func TestSuite(t *testing.T) {
//		codeexectest.Run(t, open, codeexectest.Traits{Stateful: true})
//	}
//
// What a backend cannot do it must refuse, and the suite checks that it does.
package codeexectest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Traits say what an executor differs in.
type Traits struct {
	// Stateful: variables last from call to call of one execution id.
	Stateful bool
	// PerID: different execution ids have states of their own.
	PerID bool
	// Files: files last from call to call.
	Files bool
	// Lose ends the sandbox or container in which an execution id has its files,
	// behind the executor's back or for want of room, or loses its folder. The next
	// call, or the one after it, finds another. Nil where there is nothing to lose.
	Lose func(t *testing.T, e codeexec.CodeExecutor, id string)
	// Display: what code shows becomes files; without it only what it prints
	// counts.
	Display bool
	// MaxOutput is the bound of the output, in bytes; 0 means
	// cubby.DefaultMaxOutput.
	MaxOutput int
	// Short opens an executor whose executions may take Timeout, which is a few
	// seconds.
	Short   func(t *testing.T) codeexec.CodeExecutor
	Timeout time.Duration
	// Workspaces are the traits of its engine; nil means that it has none.
	Workspaces *WorkspaceTraits
}

// Run runs the suite. open makes an executor whose executions may take a minute
// or more; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) codeexec.CodeExecutor, traits Traits) {
	if traits.Short == nil || traits.Timeout <= 0 {
		t.Fatal("Traits.Short and Traits.Timeout are needed")
	}
	if traits.MaxOutput == 0 {
		traits.MaxOutput = cubby.DefaultMaxOutput
	}
	s := suite{traits: traits, open: func(t *testing.T) codeexec.CodeExecutor {
		t.Helper()
		e := open(t)
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return e
	}}
	t.Run("Code", s.code)
	t.Run("Output", s.output)
	t.Run("Errors", s.errors)
	t.Run("Bounds", s.bounds)
	t.Run("State", s.state)
	t.Run("Instance", s.instance)
	t.Run("Files", s.files)
	t.Run("Collect", s.collect)
	t.Run("Closed", s.closed)
	if traits.Workspaces != nil {
		t.Run("Workspaces", func(t *testing.T) {
			Workspaces(t, func(t *testing.T) codeexec.Engine {
				t.Helper()
				p, ok := s.open(t).(codeexec.EngineProvider)
				if !ok {
					t.Fatal("it is no EngineProvider")
				}
				return p.Engine()
			}, *traits.Workspaces)
		})
	}
}

type suite struct {
	open   func(t *testing.T) codeexec.CodeExecutor
	traits Traits
}

func block(language, code string) codeexec.CodeBlock {
	return codeexec.CodeBlock{Language: language, Code: code}
}

// run runs blocks under one id and fails the test on an error.
func run(t *testing.T, e codeexec.CodeExecutor, blocks ...codeexec.CodeBlock) codeexec.CodeExecutionResult {
	t.Helper()
	return runIn(t, e, codeexec.CodeExecutionInput{CodeBlocks: blocks, ExecutionID: "suite"})
}

func runIn(t *testing.T, e codeexec.CodeExecutor, in codeexec.CodeExecutionInput) codeexec.CodeExecutionResult {
	t.Helper()
	r, err := e.ExecuteCode(t.Context(), in)
	if err != nil {
		t.Fatalf("ExecuteCode: %v", err)
	}
	return r
}

func wantOutput(t *testing.T, r codeexec.CodeExecutionResult, want string) {
	t.Helper()
	if r.Output != want {
		t.Errorf("output %.500q, want %.500q", r.Output, want)
	}
}

// hello is a program in each language that prints "hello 42".
var hello = map[string]string{
	codeexec.Python:     "print('hello', 6*7)",
	codeexec.JavaScript: "console.log('hello', 6*7)",
	codeexec.TypeScript: "const n: number = 6*7; console.log('hello', n)",
	codeexec.Bash:       "echo hello $((6*7))",
}

func (s suite) code(t *testing.T) {
	e := s.open(t)
	t.Run("each language, by each of its names", func(t *testing.T) {
		names := map[string][]string{
			codeexec.Python: {"python", "py", "python3", "tool_code", "", "Python"}, codeexec.JavaScript: {"javascript", "js", "node"},
			codeexec.TypeScript: {"typescript", "ts"}, codeexec.Bash: {"bash", "sh", "shell"},
		}
		for _, language := range e.Languages() {
			code, ok := hello[language]
			if !ok {
				continue // a server's own
			}
			for _, name := range names[language] {
				r := run(t, e, block(name, code))
				if r.Output != "hello 42\n" || r.Outcome != codeexec.OutcomeOK || r.ExitCode != 0 || r.Duration <= 0 ||
					len(r.Blocks) != 1 || r.Blocks[0].Language != language {
					t.Errorf("%q: %+v", name, r)
				}
			}
		}
		for _, must := range []string{codeexec.Python, codeexec.Bash} {
			if !slices.Contains(e.Languages(), must) {
				t.Errorf("%s is not among %v", must, e.Languages())
			}
		}
	})
	t.Run("blocks in order", func(t *testing.T) {
		wantOutput(t, run(t, e, block("python", "print(1)"), block("bash", "echo 2"), block("python", "print(3)")), "1\n2\n3\n")
	})
	t.Run("code instead of blocks is Python", func(t *testing.T) {
		wantOutput(t, runIn(t, e, codeexec.CodeExecutionInput{Code: "print('code')"}), "code\n")
	})
	t.Run("from a reply to an answer", func(t *testing.T) {
		reply := "I will compute it.\n\n```tool_code\nresult = 15 + 27 * 3\nprint(result)\n```\n"
		blocks := codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{Delimiters: e.CodeBlockDelimiters(), Languages: e.Languages()})
		if got := run(t, e, blocks...).ToolOutput(codeexec.RenderOptions{}).Text; got != "```tool_output\n96\n```" {
			t.Errorf("blocks %q gave %q", blocks, got)
		}
	})
	t.Run("nothing to run", func(t *testing.T) {
		for what, in := range map[string]codeexec.CodeExecutionInput{
			"no block": {}, "empty block": {CodeBlocks: []codeexec.CodeBlock{{}}},
			"blank blocks": {CodeBlocks: []codeexec.CodeBlock{block("python", " \n\n"), block("bash", "\n")}},
			"a comment":    {CodeBlocks: []codeexec.CodeBlock{block("python", "# nothing")}},
		} {
			if r := runIn(t, e, in); r.Output != "" || r.Outcome != codeexec.OutcomeOK || len(r.Blocks) != len(in.CodeBlocks) {
				t.Errorf("%s: %+v", what, r)
			}
		}
	})
	t.Run("text of every kind", func(t *testing.T) {
		wantOutput(t, run(t, e, block("python", `print("ü 漢 🎉", "tab\t", '"quotes\'', "$HOME `+"`x`"+` \\n")`)), "ü 漢 🎉 tab\t \"quotes' $HOME `x` \\n\n")
	})
	t.Run("bytes that are no text", func(t *testing.T) {
		wantOutput(t, run(t, e, block("bash", `printf 'a\377b\n'`)), "a\uFFFDb\n")
	})
	t.Run("there is no input to wait for", func(t *testing.T) {
		if r := run(t, e, block("python", "input()")); r.TimedOut || r.Outcome != codeexec.OutcomeFailed {
			t.Errorf("got %+v", r)
		}
		wantOutput(t, run(t, e, block("bash", "cat; echo end")), "end\n")
	})
	t.Run("a giant block", func(t *testing.T) {
		r := run(t, e, block("python", "x = '"+strings.Repeat("x", 2<<20)+"'\nprint(len(x))"))
		wantOutput(t, r, "2097152\n")
	})
	t.Run("many blocks at a time", func(t *testing.T) {
		errs := make(chan error)
		for i := range 6 {
			go func() {
				r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{
					CodeBlocks: []codeexec.CodeBlock{block("python", fmt.Sprintf("print(%d)", i))}, ExecutionID: "suite",
				})
				if err == nil && r.Output != fmt.Sprintf("%d\n", i) {
					err = fmt.Errorf("%d: got %+v", i, r)
				}
				errs <- err
			}()
		}
		for range 6 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

func (s suite) errors(t *testing.T) {
	e := s.open(t)
	t.Run("an uncaught error has type, message and line", func(t *testing.T) {
		r := run(t, e, block("python", "print('before')\n\ndef f():\n    return 1/0\n\nf()\nprint('after')"))
		if r.Outcome != codeexec.OutcomeFailed || r.ExitCode != 1 || r.Error == nil {
			t.Fatalf("got %+v", r)
		}
		if x := r.Error; x.Type != "ZeroDivisionError" || x.Message != "division by zero" || x.Line != 4 || !strings.Contains(x.Traceback, "ZeroDivisionError") {
			t.Errorf("got %+v", x)
		}
		if !strings.HasPrefix(r.Output, "before\n") || !strings.Contains(r.Output, "ZeroDivisionError: division by zero") || strings.Contains(r.Output, "after") {
			t.Errorf("output %q", r.Output)
		}
	})
	t.Run("a syntax error", func(t *testing.T) {
		r := run(t, e, block("python", "x = 1\nif x\n    pass\n"))
		if r.Error == nil || r.Error.Type != "SyntaxError" || r.Error.Line != 2 || r.Outcome != codeexec.OutcomeFailed {
			t.Errorf("got %+v, %+v", r, r.Error)
		}
	})
	for language, code := range map[string]string{
		codeexec.JavaScript: "const a = 1;\nfunction f() { throw new TypeError('bad thing'); }\nf();",
		codeexec.TypeScript: "const a: number = 1;\nfunction f(): void { throw new TypeError('bad thing'); }\nf();",
	} {
		if !slices.Contains(e.Languages(), language) {
			continue
		}
		t.Run("an error in "+language, func(t *testing.T) {
			r := run(t, e, block(language, code))
			if r.Error == nil || r.Error.Type != "TypeError" || r.Error.Message != "bad thing" || r.Error.Line != 2 || r.Outcome != codeexec.OutcomeFailed {
				t.Errorf("got %+v, %+v", r, r.Error)
			}
		})
	}
	t.Run("exit codes", func(t *testing.T) {
		for _, b := range []codeexec.CodeBlock{block("python", "import sys\nsys.exit(3)"), block("bash", "exit 3")} {
			if r := run(t, e, b); r.ExitCode != 3 || r.Outcome != codeexec.OutcomeFailed {
				t.Errorf("%s: %+v", b.Language, r)
			}
		}
		if r := run(t, e, block("bash", "no-such-command")); r.ExitCode != 127 || r.Outcome != codeexec.OutcomeFailed || !strings.Contains(r.Output, "not found") {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("stderr is output and no failure", func(t *testing.T) {
		r := run(t, e, block("bash", "echo out; echo err >&2"))
		if r.Outcome != codeexec.OutcomeOK || !strings.Contains(r.Output, "err\n") || r.Blocks[0].Stdout != "out\n" || r.Blocks[0].Stderr != "err\n" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("a block that fails does not keep the next from running", func(t *testing.T) {
		r := run(t, e, block("python", "raise ValueError('first')"), block("bash", "exit 9"), block("python", "print('third')"))
		if r.Outcome != codeexec.OutcomeFailed || r.ExitCode != 1 || r.Error == nil || r.Error.Message != "first" || len(r.Blocks) != 3 ||
			r.Blocks[1].ExitCode != 9 || !strings.HasSuffix(r.Output, "third\n") {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("code runs once, also when it fails", func(t *testing.T) {
		r := run(t, e, block("bash", "d=$(mktemp -d); echo run; rmdir $d; false"))
		if strings.Count(r.Output, "run\n") != 1 || len(r.Blocks) != 1 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("a language that is not there is told to the model", func(t *testing.T) {
		for _, language := range []string{"cobol", "json", "text", strings.Repeat("x", 100_000), "\x1b[31m"} {
			r := run(t, e, block(language, "DISPLAY 'HI'"), block("python", "print('still')"))
			if r.Outcome != codeexec.OutcomeFailed || len(r.Blocks) != 2 || !r.Blocks[0].Unsupported || r.Blocks[0].Error == nil || !strings.HasSuffix(r.Output, "still\n") {
				t.Errorf("%.20q: %+v", language, r)
			}
			if !strings.Contains(r.Output, "python") || len(r.Output) > 1000 || strings.Contains(r.Output, "\x1b") {
				t.Errorf("%.20q: the model is told %.300q", language, r.Output)
			}
		}
	})
}

func (s suite) bounds(t *testing.T) {
	t.Run("a timeout ends the code and is no error", func(t *testing.T) {
		for _, b := range []codeexec.CodeBlock{
			block("python", "print('begun', flush=True)\nwhile True: pass"),
			block("bash", "echo begun; (trap '' TERM INT; sleep 600) & sleep 600"),
		} {
			e := s.traits.Short(t)
			t.Cleanup(func() { e.Close() })
			run(t, e, block("python", "1"), block("bash", "true")) // starting may take long
			began := time.Now()
			r := run(t, e, b)
			if !r.TimedOut || r.Outcome != codeexec.OutcomeDeadlineExceeded || r.ExitCode != codeexec.ExitTimedOut || r.Limit != "time" || !strings.HasPrefix(r.Output, "begun\n") {
				t.Errorf("%s: %+v", b.Language, r)
			}
			if took := time.Since(began); took > s.traits.Timeout+slow {
				t.Errorf("%s: it took %v", b.Language, took)
			}
			wantOutput(t, run(t, e, block(b.Language, hello[b.Language])), "hello 42\n")
		}
	})
	e := s.open(t)
	t.Run("a caller that gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		_, err := e.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{block("bash", "sleep 600")}, ExecutionID: "suite"})
		wantCode(t, "ExecuteCode", err, cubby.CodeCanceled)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		wantOutput(t, run(t, e, block("bash", "echo again")), "again\n")
	})
	t.Run("output is bounded, the code goes on", func(t *testing.T) {
		n := s.traits.MaxOutput + 1<<20
		told := 0
		r := runIn(t, e, codeexec.CodeExecutionInput{
			CodeBlocks:  []codeexec.CodeBlock{block("bash", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", n)), block("python", "1/1")},
			ExecutionID: "suite", OnOutput: func(_, text string) { told += len(text) },
		})
		if told != len(r.Output) {
			t.Errorf("OnOutput was told %d bytes of %d that were kept", told, len(r.Output))
		}
		if !r.Truncated || r.Limit != "output" || r.Outcome != codeexec.OutcomeOK || len(r.Output) > n || len(r.Output) < s.traits.MaxOutput/2 {
			t.Errorf("%d bytes of %d, truncated %v, limit %q, %s", len(r.Output), n, r.Truncated, r.Limit, r.Outcome)
		}
		text := r.ToolOutput(codeexec.RenderOptions{})
		if len(text.Text) > 2*codeexec.DefaultMaxChars || len(text.Files) != 1 || text.Files[0].Name != codeexec.WholeOutputName {
			t.Errorf("the model is shown %d characters and %d files", len(text.Text), len(text.Files))
		}
	})
}

func (s suite) state(t *testing.T) {
	e := s.open(t)
	in := func(id, code string) codeexec.CodeExecutionInput {
		return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{block("python", code)}, ExecutionID: id}
	}
	t.Run("variables", func(t *testing.T) {
		runIn(t, e, in("a", "kept = 41"))
		r := runIn(t, e, in("a", "print(kept + 1)"))
		if s.traits.Stateful {
			wantOutput(t, r, "42\n")
		} else if r.Error == nil || r.Error.Type != "NameError" {
			t.Errorf("variables last, or something else is wrong: %+v", r)
		}
	})
	if s.traits.Stateful && s.traits.PerID {
		t.Run("each conversation has its own", func(t *testing.T) {
			if r := runIn(t, e, in("b", "print(kept)")); r.Error == nil || r.Error.Type != "NameError" {
				t.Errorf("got %+v", r)
			}
			wantOutput(t, runIn(t, e, in("a", "print(kept)")), "41\n")
		})
	}
}

func (s suite) files(t *testing.T) {
	e := s.open(t)
	t.Run("input files are in the working directory", func(t *testing.T) {
		r := runIn(t, e, codeexec.CodeExecutionInput{
			CodeBlocks: []codeexec.CodeBlock{block("python", "print(open('in.csv').read(), open('sub/b').read())"), block("bash", "cat in.csv")},
			InputFiles: []codeexec.File{{Name: "in.csv", Content: []byte("x,y")}, {Name: "sub/b", Content: []byte("b")}},
		})
		wantOutput(t, r, "x,y b\nx,y")
	})
	t.Run("input files stay below it", func(t *testing.T) {
		for _, bad := range badPaths {
			_, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{
				Code: "print('ran')", InputFiles: []codeexec.File{{Name: bad, Content: []byte("x")}},
			})
			wantCode(t, fmt.Sprintf("%.40q", bad), err, cubby.CodeInvalidArgument)
		}
	})
	if !s.traits.Display {
		return
	}
	t.Run("what is too large to be shown is named", func(t *testing.T) {
		r := run(t, e, block("python", `
class Large(list):
    def __repr__(self): return "large"
Large(["x" * 1000] * 2000)`))
		if !slices.Equal(r.Left, []codeexec.LeftFile{{Name: "result_0.json", Reason: "it is too large to be shown"}}) || !r.Truncated || r.Outcome != codeexec.OutcomeOK {
			t.Errorf("left %q, truncated %v, %s", r.Left, r.Truncated, r.Outcome)
		}
		if text := r.String(); !strings.Contains(text, "[Left out: result_0.json: it is too large to be shown]\n") {
			t.Errorf("the model reads %q", text)
		}
	})
	t.Run("what is shown becomes files", func(t *testing.T) {
		r := run(t, e, block("python", `
class Shown:
    def __repr__(self): return "a picture"
    def _repr_svg_(self): return "<svg xmlns='http://www.w3.org/2000/svg'></svg>"
    def _repr_latex_(self): return "$x^2$"
    def _repr_html_(self): return "<b>bold</b>"
    def _repr_markdown_(self): return "**bold**"
    def _repr_png_(self): return b"\x89PNG\r\n\x1a\n" + bytes(20)
Shown()`))
		got := map[string]string{}
		for _, f := range r.OutputFiles {
			got[f.Name] = f.MIMEType
			if f.SizeBytes != int64(len(f.Content)) || f.SizeBytes == 0 {
				t.Errorf("%s: %d bytes, says %d", f.Name, len(f.Content), f.SizeBytes)
			}
		}
		same(t, "files", got, map[string]string{
			"result_0_0.png": "image/png", "result_0_1.svg": "image/svg+xml", "result_0_2.tex": "application/x-latex",
			"result_0_3.html": "text/html; charset=utf-8", "result_0_4.md": "text/markdown; charset=utf-8",
		})
		if text := r.String(); !strings.Contains(text, "[Generated image: result_0_0.png]") || !strings.Contains(text, "a picture") {
			t.Errorf("the model reads %q", text)
		}
	})
}

func (s suite) closed(t *testing.T) {
	e := s.open(t)
	for range 2 {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	_, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "print(1)"})
	if err == nil || cubby.CodeOf(err) == 0 {
		t.Errorf("after Close: %v", err)
	}
}
