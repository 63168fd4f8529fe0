package posixws_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
)

// trick is a machine in which programs that hold a word are answered by someone
// else.
type trick struct {
	hostMachine
	word   string
	answer func(p posixws.Program) (code int, err error)
	refuse error // instead of starting
}

func (m *trick) Start(ctx context.Context, p posixws.Program) (posixws.Process, error) {
	if m.word == "" || !slices.ContainsFunc(p.Argv, func(a string) bool { return strings.Contains(a, m.word) }) {
		return m.hostMachine.Start(ctx, p)
	}
	if m.refuse != nil {
		return nil, m.refuse
	}
	f := &forged{done: make(chan struct{}), stop: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.code, f.err = m.answer(p)
	}()
	return f, nil
}

func (m *trick) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	return posixws.Extract(ctx, m, folder, archive)
}

type forged struct {
	done, stop chan struct{}
	code       int
	err        error
}

func (f *forged) Write(p []byte) (int, error) { return len(p), nil }
func (f *forged) Kill() error                 { close(f.stop); return nil }

func (f *forged) Wait() (int, error) {
	select {
	case <-f.done:
		return f.code, f.err
	case <-f.stop:
		return -1, nil
	}
}

// Words by which to find the scripts.
const (
	listing   = "-printf"
	packing   = "--null -T -"
	unpacking = "-xpof"
	launching = "exec env"
	beginning = "base64"
)

func create(t *testing.T, e *posixws.Engine) codeexec.Workspace {
	t.Helper()
	ws, err := e.Manager().CreateWorkspace(t.Context(), "test", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func wantCode(t *testing.T, what string, err error, code cubby.Code) {
	t.Helper()
	if cubby.CodeOf(err) != code {
		t.Errorf("%s: got %v (%v), want %v", what, err, cubby.CodeOf(err), code)
	}
}

// A machine may answer a listing with anything: no name leads outside, and what
// makes no sense is left.
func TestForgedListing(t *testing.T) {
	m := &trick{}
	e := newEngine(t, m, posixws.Config{})
	ws := create(t, e)
	if err := e.FS().PutFiles(t.Context(), ws, []codeexec.PutFile{{Path: "out/real", Content: []byte("real")}}); err != nil {
		t.Fatal(err)
	}
	m.word = listing
	for what, answer := range map[string]string{
		"nothing": "", "no end": "/root", "garbage": "\x00\x00\x00\x00", "half": "/root\x000 f 5 x",
		"outside":        "/r\x000 f 5 ../../../etc/passwd\x00/etc/passwd\x000 F 5 ../x\x00/r/../../x\x00",
		"a wrong folder": "/r\x0099 f 1 a\x00/r/a\x00-1 f 1 a\x00/r/a\x00", "a size": "/r\x000 f -5 a\x00/r/a\x000 f 99999999999999999999 a\x00/r/a\x00",
		"escape codes": "/r\x000 f 1 \x1b[31m\x00/r/out/x\x00", "not there": "/r\x000 f 5 nothing\x00/r/out/nothing\x00", "huge": "/r\x000 f 9223372036854775807 huge\x00/r/out/huge\x00",
	} {
		t.Run(what, func(t *testing.T) {
			m.answer = func(p posixws.Program) (int, error) {
				io.WriteString(p.Stdout, answer)
				return 0, nil
			}
			got, err := e.FS().CollectOutputs(t.Context(), ws, codeexec.OutputSpec{Globs: []string{"out/**"}, Inline: true})
			if err == nil && len(got.Files) > 0 {
				t.Errorf("got %+v", got)
			}
			if err != nil && cubby.CodeOf(err) == 0 {
				t.Errorf("an error without a code: %v", err)
			}
			for _, l := range got.Left {
				if strings.ContainsAny(l.Name, "\x1b") {
					t.Errorf("left %q", l.Name)
				}
			}
		})
	}
	t.Run("an answer without end", func(t *testing.T) {
		m.answer = func(p posixws.Program) (int, error) {
			io.WriteString(p.Stdout, "/r\x00")
			for i := range 1 << 20 {
				fmt.Fprintf(p.Stdout, "0 f 5 %064d\x00/r/out/x\x00", i)
			}
			return 0, nil
		}
		_, err := e.FS().Collect(t.Context(), ws, []string{"out/**"})
		wantCode(t, "Collect", err, cubby.CodeInternal)
	})
	t.Run("a thousand names too many", func(t *testing.T) {
		m.answer = func(p posixws.Program) (int, error) {
			io.WriteString(p.Stdout, "/r\x00")
			for i := range 120_000 {
				fmt.Fprintf(p.Stdout, "0 p 0 %d\x00/r/out/%d\x00", i, i)
			}
			return 0, nil
		}
		got, err := e.FS().CollectOutputs(t.Context(), ws, codeexec.OutputSpec{Globs: []string{"out/**"}})
		if err != nil || len(got.Left) != 100 || !got.LimitsHit {
			t.Errorf("left %d, %v", len(got.Left), err)
		}
	})
}

// An archive from a machine may hold anything: only what was asked for counts.
func TestForgedArchive(t *testing.T) {
	m := &trick{}
	e := newEngine(t, m, posixws.Config{})
	ws := create(t, e)
	if err := e.FS().PutFiles(t.Context(), ws, []codeexec.PutFile{{Path: "out/a", Content: []byte("12345")}, {Path: "out/b", Content: []byte("12345")}}); err != nil {
		t.Fatal(err)
	}
	m.word = packing
	for what, tc := range map[string]struct {
		write func(w io.Writer)
		want  string
	}{
		"nothing": {func(io.Writer) {}, ""},
		"garbage": {func(w io.Writer) { w.Write(make([]byte, 100)); io.WriteString(w, strings.Repeat("x", 5000)) }, ""},
		"others": {func(w io.Writer) {
			tarOf(w, tar.Header{Name: "./out/c", Size: 3}, tar.Header{Name: "/etc/passwd", Size: 3})
		}, ""},
		"a link": {func(w io.Writer) {
			tarOf(w, tar.Header{Name: "./out/a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: "./out/b", Size: 5})
		}, "out/b=xxxxx"},
		"twice": {func(w io.Writer) {
			tarOf(w, tar.Header{Name: "./out/a", Size: 1}, tar.Header{Name: "./out/a", Size: 5})
		}, "out/a=x"},
		"longer": {func(w io.Writer) { tarOf(w, tar.Header{Name: "./out/a", Size: 100_000}) }, "out/a=xxxxx"},
		"shorter than it says": {func(w io.Writer) {
			tw := tar.NewWriter(w)
			tw.WriteHeader(&tar.Header{Name: "./out/a", Size: 100, Typeflag: tar.TypeReg})
		}, "out/a="},
	} {
		t.Run(what, func(t *testing.T) {
			m.answer = func(p posixws.Program) (int, error) { tc.write(p.Stdout); return 0, nil }
			got, err := e.FS().CollectOutputs(t.Context(), ws, codeexec.OutputSpec{Globs: []string{"out/*"}, Inline: true})
			if err != nil {
				t.Fatal(err)
			}
			var files []string
			for _, f := range got.Files {
				files = append(files, f.Name+"="+string(f.Content))
			}
			if s := strings.Join(files, " "); s != tc.want || !got.LimitsHit || len(got.Left) == 0 {
				t.Errorf("got %q, left %+v; want %q", s, got.Left, tc.want)
			}
		})
	}
	t.Run("beginnings", func(t *testing.T) {
		m.word = beginning
		for answer, want := range map[string]string{
			"": "", "!\n!\n": "", "MTI=\nMTI=\n": "out/a=12 out/b=12", "not base64\nMTI=\n": "out/b=12", "MTIzNDU2Nzg5MA==\n": "out/a=123",
		} {
			m.answer = func(p posixws.Program) (int, error) { io.WriteString(p.Stdout, answer); return 0, nil }
			got, err := e.FS().CollectOutputs(t.Context(), ws, codeexec.OutputSpec{Globs: []string{"out/*"}, Inline: true, MaxFileBytes: 3})
			var files []string
			for _, f := range got.Files {
				files = append(files, f.Name+"="+string(f.Content))
			}
			if s := strings.Join(files, " "); err != nil || s != want {
				t.Errorf("%q: got %q, %v; want %q", answer, s, err, want)
			}
		}
	})
}

func tarOf(w io.Writer, headers ...tar.Header) {
	tw := tar.NewWriter(w)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		tw.WriteHeader(&h)
		if h.Size > 0 {
			io.WriteString(tw, strings.Repeat("x", int(h.Size)))
		}
	}
	tw.Close()
}

// A machine that is lost loses its workspaces: the errors say so, and whether
// the call can be made again.
func TestLostMachine(t *testing.T) {
	gone := &cubby.Error{Code: cubby.CodeSandboxGone, Err: errors.New("it was killed")}
	dies := func(posixws.Program) (int, error) { return -1, gone }
	m := &trick{}
	e := newEngine(t, m, posixws.Config{})
	ws := create(t, e)
	put := []codeexec.PutFile{{Path: "work/a"}}
	for what, tc := range map[string]struct {
		word   string
		refuse error
		call   func() error
		safe   bool
	}{
		"before a program": {launching, gone, func() error {
			_, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true"})
			return err
		}, true},
		"during a program": {launching, nil, func() error {
			_, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true"})
			return err
		}, false},
		"while files go in": {unpacking, nil, func() error { return e.FS().PutFiles(t.Context(), ws, put) }, true},
		"while files come out": {listing, nil, func() error {
			_, err := e.FS().Collect(t.Context(), ws, []string{"**"})
			return err
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			m.word, m.refuse, m.answer = tc.word, tc.refuse, dies
			err := tc.call()
			wantCode(t, "the call", err, cubby.CodeSandboxGone)
			if codeexec.IsWorkspaceRetrySafe(err) != tc.safe || errors.Is(err, codeexec.ErrWorkspaceRetryUnsafe) == tc.safe {
				t.Errorf("safe to make again: %v, want %v (%v)", !tc.safe, tc.safe, err)
			}
		})
	}
	m.word = "" // and is back
	if _, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true"}); err != nil {
		t.Error(err)
	}
}

// A machine that says nothing holds nobody up.
func TestSilentMachine(t *testing.T) {
	m := &trick{}
	e := newEngine(t, m, posixws.Config{FileTimeout: 300 * time.Millisecond})
	ws := create(t, e)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	m.word, m.answer = listing, func(posixws.Program) (int, error) { <-never; return 0, nil }
	_, err := e.FS().Collect(t.Context(), ws, []string{"**"})
	wantCode(t, "Collect", err, cubby.CodeTimeout)
	m.word = unpacking
	wantCode(t, "PutFiles", e.FS().PutFiles(t.Context(), ws, []codeexec.PutFile{{Path: "a"}}), cubby.CodeTimeout)
}

// A program whose group cannot be ended is dropped.
func TestKillWithoutSignals(t *testing.T) {
	m := &trick{word: "kill -s", answer: func(posixws.Program) (int, error) { return 3, nil }}
	e := newEngine(t, m, posixws.Config{})
	ws := create(t, e)
	r, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"600"}, Timeout: 200 * time.Millisecond})
	if err != nil || !r.TimedOut {
		t.Errorf("got %+v, %v", r, err)
	}
}

// What a program writes where its number is kept ends nothing but itself: the
// script takes numbers only, and not process 1.
func TestForgedLeader(t *testing.T) {
	e := newEngine(t, hostMachine{}, posixws.Config{})
	ws := create(t, e)
	for _, forged := range []string{"1", "0", "-1", "1 2 3; touch $WORK_DIR/ran", "$(touch work/ran)", "p1", ""} {
		r, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{
			Cmd: "sh", Args: []string{"-c", `printf '%s\n' "$F" > "$RUN_DIR/.leader"; exec sleep 600`}, Env: map[string]string{"F": forged}, Timeout: 300 * time.Millisecond,
		})
		if err != nil || !r.TimedOut {
			t.Errorf("%q: %+v, %v", forged, r, err)
		}
	}
	if files, err := e.FS().Collect(t.Context(), ws, []string{"**/ran"}); err != nil || len(files) > 0 {
		t.Errorf("it ran: %v, %v", files, err)
	}
}

// The limits of the whole hold for a program that asks for them or wider ones.
func TestLimitsOfTheMachine(t *testing.T) {
	e := newEngine(t, hostMachine{}, posixws.Config{Have: codeexec.ResourceLimits{CPUs: 1, MemoryBytes: 512 << 20, MaxPIDs: 100}})
	ws := create(t, e)
	run := func(l codeexec.ResourceLimits) error {
		_, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true", Limits: l})
		return err
	}
	if err := errors.Join(run(codeexec.ResourceLimits{CPUs: 1, MemoryBytes: 512 << 20, MaxPIDs: 200}),
		run(codeexec.ResourceLimits{MemoryBytes: 1 << 40})); err != nil {
		t.Error(err)
	}
	for _, l := range []codeexec.ResourceLimits{{CPUs: 0.5}, {MemoryBytes: 1 << 20}, {MaxPIDs: 99},
		{DiskBytes: 1 << 40}, {FileSizeBytes: 1 << 20}} {
		if err := run(l); !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if got := e.Describe().Limits; !slices.Equal(got, []string{"cpus", "memory_bytes", "max_pids"}) {
		t.Errorf("it says %v", got)
	}
}

func TestHostInputsFromOneFolder(t *testing.T) {
	base, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{base, other} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("f"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := newEngine(t, hostMachine{}, posixws.Config{HostBase: base})
	ws := create(t, e)
	stage := func(dir string) error {
		return e.FS().StageInputs(t.Context(), ws, []codeexec.InputSpec{{From: "host://" + filepath.Join(dir, "f")}})
	}
	if err := stage(base); err != nil {
		t.Error(err)
	}
	if err := stage(other); !errors.Is(err, codeexec.ErrBadPath) {
		t.Errorf("got %v", err)
	}
}

func TestProgramsAreBoundedAndEnded(t *testing.T) {
	e := newEngine(t, hostMachine{}, posixws.Config{MaxPrograms: 2})
	ws := create(t, e)
	sleep := codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"600"}}}
	var running []codeexec.ProgramSession
	for range 2 {
		s, err := e.Runner().StartProgram(t.Context(), ws, sleep)
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, s)
	}
	_, err := e.Runner().StartProgram(t.Context(), ws, sleep)
	wantCode(t, "a third", err, cubby.CodeRateLimited)
	if err := running[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true"}); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if r, err := running[1].Wait(t.Context()); err == nil && r.ExitCode == 0 {
		t.Errorf("it went on: %+v", r)
	}
	_, err = e.Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
	wantCode(t, "after Close", err, cubby.CodeConflict)
}

func TestRoots(t *testing.T) {
	for _, bad := range []string{"relative", "/", "a\x00"} {
		_, err := posixws.New(hostMachine{}, posixws.Config{Root: bad})
		wantCode(t, bad, err, cubby.CodeInvalidArgument)
	}
	e := newEngine(t, hostMachine{}, posixws.Config{Root: "/proc/nowhere"})
	_, err := e.Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
	wantCode(t, "a root that cannot be made", err, cubby.CodePermissionDenied)
}

// A pin of another process is found in the workspace's record.
func TestPinsOfAnotherProcess(t *testing.T) {
	root := filepath.Join(t.TempDir(), "run")
	ctx := codeexec.WithArtifactService(t.Context(), newStore(t, "v0", "v1"))
	stage := func(want string) {
		t.Helper()
		e := newEngine(t, hostMachine{}, posixws.Config{Root: root})
		ws, err := e.Manager().CreateWorkspace(ctx, "id", codeexec.WorkspacePolicy{Persist: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.FS().StageInputs(ctx, ws, []codeexec.InputSpec{{From: "artifact://a", Pin: true}}); err != nil {
			t.Fatal(err)
		}
		files, err := e.FS().Collect(ctx, ws, []string{"work/inputs/a"})
		if err != nil || len(files) != 1 || string(files[0].Content) != want {
			t.Errorf("got %+v, %v; want %s", files, err, want)
		}
	}
	stage("v1")
	if _, err := artifactctx.Save(ctx, "a", []byte("v2"), ""); err != nil {
		t.Fatal(err)
	}
	stage("v1")
}
