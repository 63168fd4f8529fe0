package backend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
)

// A block that runs in a sandbox: the output is in the order in which it came,
// the error comes last, and what was shown becomes files.
func TestResultOfExecutions(t *testing.T) {
	var b backend.ResultBuilder
	k := b.Begin("py")
	fmt.Fprint(k.Stdout(), "one\ntwo")
	fmt.Fprint(k.Stderr(), " three\n")
	k.Show(cubby.Result{Text: "<Figure size 640x480 with 1 Axes>", PNG: []byte("\x89PNG\r\n\x1a\n...")})
	k.Show(cubby.Result{Text: "   a  b\n0  1  2", HTML: "<table></table>", IsMain: true})
	k.EndExecution(&cubby.Execution{
		ExitCode: 1, Duration: time.Second,
		Error: &cubby.ExecutionError{Name: "ValueError", Value: "x", Traceback: "Traceback (most recent call last):\n  File \"<cell 1>\", line 3, in <module>\nValueError: x\n"},
	})
	k = b.Begin("bash")
	k.EndExecution(&cubby.Execution{Duration: time.Second, TimedOut: true, ExitCode: 124, Limit: "time", StateLost: true})
	b.Begin("cobol").EndUnsupported([]string{"python", "bash"})

	r := b.Result()
	want := "one\ntwo three\n   a  b\n0  1  2\nTraceback (most recent call last):\n  File \"<cell 1>\", line 3, in <module>\nValueError: x\n" +
		"UnsupportedLanguage: \"cobol\" cannot be run here; write the code in one of: python, bash\n"
	if r.Output != want {
		t.Errorf("got %q, want %q", r.Output, want)
	}
	if r.Outcome != codeexec.OutcomeDeadlineExceeded || r.ExitCode != 1 || !r.TimedOut ||
		r.Limit != "time" || !r.StateLost || r.Duration != 2*time.Second {
		t.Errorf("got %+v", r)
	}
	if e := r.Error; e == nil || e.Type != "ValueError" || e.Line != 3 {
		t.Errorf("got %+v", r.Error)
	}
	if len(r.Blocks) != 3 || r.Blocks[0].Stdout != "one\ntwo" || r.Blocks[0].Stderr != " three\n" || !r.Blocks[2].Unsupported || r.Blocks[1].Language != "bash" {
		t.Errorf("got %+v", r.Blocks)
	}
	if len(r.OutputFiles) != 2 || r.OutputFiles[0].Name != "result_0_0.png" || r.OutputFiles[1].Name != "result_0_1.html" {
		t.Errorf("got %+v", r.OutputFiles)
	}
}

// What the network refused stands behind the error, at most three times.
func TestResultOfRefusals(t *testing.T) {
	var b backend.ResultBuilder
	k := b.Begin("python")
	fmt.Fprint(k.Stdout(), "asking")
	refused := make([]cubby.Refusal, 5)
	for i := range refused {
		refused[i] = cubby.Refusal{Host: "h", Reason: fmt.Sprintf("no rule allows h%d", i)}
	}
	k.EndExecution(&cubby.Execution{ExitCode: 1, Error: &cubby.ExecutionError{Name: "URLError", Value: "x"}, Refused: refused})
	want := "asking\nURLError: x\nnetwork: no rule allows h0\nnetwork: no rule allows h1\nnetwork: no rule allows h2\n"
	if r := b.Result(); r.Output != want || r.Outcome != codeexec.OutcomeFailed {
		t.Errorf("got %q, want %q", r.Output, want)
	}
}

// A block that runs as a program has written its error to stderr already.
func TestResultOfPrograms(t *testing.T) {
	var b backend.ResultBuilder
	k := b.Begin("python")
	fmt.Fprint(k.Stderr(), "Traceback (most recent call last):\n  File \"code_0.py\", line 2, in <module>\nNameError: name 'x' is not defined\n")
	k.EndProgram(1, false, false)
	k = b.Begin("sh")
	fmt.Fprint(k.Stdout(), "fine\n")
	k.EndProgram(0, false, false)
	r := b.Result()
	if r.Outcome != codeexec.OutcomeFailed || r.Error == nil || r.Error.Type != "NameError" || r.Error.Line != 2 ||
		strings.Count(r.Output, "NameError") != 1 || !strings.HasSuffix(r.Output, "fine\n") {
		t.Errorf("got %+v", r)
	}
}

func TestResultIsBounded(t *testing.T) {
	b := backend.ResultBuilder{MaxOutput: 100}
	k := b.Begin("python")
	for range 100 {
		fmt.Fprint(k.Stdout(), "äöü")
	}
	for range 300 {
		k.Show(cubby.Result{SVG: "<svg/>"})
	}
	k.EndExecution(&cubby.Execution{})
	r := b.Result()
	if len(r.Left) != 100 || r.Left[0] != (codeexec.LeftFile{Name: "result_0.svg", Reason: "more than 100 files"}) {
		t.Errorf("%d are named as left: %q", len(r.Left), r.Left[:1])
	}
	if len(r.Output) > 100 || !r.Truncated || r.Limit != "output" || r.Outcome != codeexec.OutcomeOK || len(r.OutputFiles) != 100 {
		t.Errorf("%d bytes, %d files, %+v", len(r.Output), len(r.OutputFiles), r.Outcome)
	}
}

// A provider refuses a picture that is none, and with it the whole conversation.
func TestWhatOnlyClaimsToBeAPicture(t *testing.T) {
	var b backend.ResultBuilder
	for range 3 {
		k := b.Begin("python")
		if len(b.Result().Blocks) == 2 {
			k.Show(cubby.Result{PNG: []byte("no picture")})
			k.Show(cubby.Result{JPEG: []byte("\xff\xd8\xff\xe0"), PDF: []byte("%PDF-1.7")})
		}
		k.EndExecution(&cubby.Execution{})
	}
	files := b.Result().OutputFiles
	if b.Result().Truncated || len(files) != 3 {
		t.Fatalf("got %+v", files)
	}
	for i, want := range []codeexec.File{
		{Name: "result_2_0.bin", MIMEType: "application/octet-stream"}, {Name: "result_2_1.jpeg", MIMEType: "image/jpeg"}, {Name: "result_2_2.pdf", MIMEType: "application/pdf"},
	} {
		if files[i].Name != want.Name || files[i].MIMEType != want.MIMEType {
			t.Errorf("got %s, %s; want %s, %s", files[i].Name, files[i].MIMEType, want.Name, want.MIMEType)
		}
	}
}

func TestBuildBlockSpec(t *testing.T) {
	for language, want := range map[string]string{"py": "code_2.py python3", "": "code_2.py python3", "sh": "code_2.sh bash", "js": "code_2.js node"} {
		s, err := backend.BuildBlockSpec(2, codeexec.CodeBlock{Language: language})
		if err != nil || s.File+" "+s.Cmd != want {
			t.Errorf("%q: got %+v, %v", language, s, err)
		}
	}
	_, err := backend.BuildBlockSpec(0, codeexec.CodeBlock{Language: "cobol"})
	if !errors.Is(err, codeexec.ErrUnsupportedLanguage) || cubby.CodeOf(err) != cubby.CodeUnimplemented {
		t.Errorf("got %v", err)
	}
}

// OnOutput is told whole characters, up to the bound, and nothing after the end.
func TestOnOutput(t *testing.T) {
	var told []string
	b := backend.ResultBuilder{MaxOutput: 12, OnOutput: func(stream, text string) { told = append(told, stream+":"+text) }}
	k := b.Begin("bash")
	out, stderr := k.Stdout(), k.Stderr()
	for _, piece := range []string{"\xc3", "\xbca\xf0\x9f", "\x8e"} {
		io.WriteString(out, piece)
		io.WriteString(stderr, "e")
	}
	k.EndProgram(0, false, false)
	io.WriteString(out, "late")
	next := b.Begin("bash")
	io.WriteString(next.Stdout(), "ü漢 and more")
	next.EndProgram(0, false, false)
	want := []string{"stderr:e", "stdout:üa", "stderr:e", "stderr:e", "stdout:\uFFFD", "stdout:ü"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if r := b.Result(); !r.Truncated || strings.Contains(r.Output, "late") {
		t.Errorf("got %+v", r)
	}
}

// The execution does not wait for the callback, which may do what it likes.
func TestRelayOutput(t *testing.T) {
	free, told := make(chan struct{}), ""
	r, err := backend.RelayOutput(t.Context(), codeexec.CodeExecutionInput{OnOutput: func(stream, text string) {
		<-free
		told += stream + ":" + text + "\n"
	}}, func(_ context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
		for range 1000 {
			in.OnOutput("stdout", "x")
		}
		in.OnOutput("stderr", "y")
		close(free)
		return codeexec.CodeExecutionResult{Output: "done"}, io.EOF
	})
	if r.Output != "done" || err != io.EOF || strings.Count(told, "x") != 1000 || !strings.HasSuffix(told, "stderr:y\n") {
		t.Errorf("got %+v, %v; told %q", r, err, told)
	}
	t.Run("a panic ends the execution and reaches the caller", func(t *testing.T) {
		ended := make(chan struct{})
		defer func() {
			<-ended
			if p := recover(); p != "callback" {
				t.Errorf("recovered %v", p)
			}
		}()
		backend.RelayOutput(t.Context(), codeexec.CodeExecutionInput{OnOutput: func(string, string) { panic("callback") }},
			func(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
				defer close(ended)
				in.OnOutput("stdout", "x")
				<-ctx.Done()
				return codeexec.CodeExecutionResult{}, nil
			})
	})
}
