//go:build linux

package transformer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
)

func TestMain(m *testing.M) { guesttest.Main(m, nil) }

func open(t *testing.T, path string) *Transformer {
	t.Helper()
	tr := New(path, false, &reaper.Children{})
	t.Cleanup(tr.Close)
	return tr
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTransform(t *testing.T) {
	tr := open(t, self(t))
	js, err := tr.Transform(t.Context(), "enum E { A = 'ä' }")
	if err != nil || !strings.Contains(js, "ä") {
		t.Fatalf("%q %v", js, err)
	}
	first := tr.proc.cmd.Process.Pid
	var bad *typescript.SyntaxError
	if _, err := tr.Transform(t.Context(), "let a = 1\nlet b: = 2\n"); !errors.As(err, &bad) || bad.Line != 2 || bad.LineText != "let b: = 2" {
		t.Errorf("%v", err)
	}
	if js, err := tr.Transform(t.Context(), ""); err != nil {
		t.Errorf("%q %v", js, err)
	}
	if again := tr.proc.cmd.Process.Pid; again != first {
		t.Errorf("process %d, then %d", first, again)
	}
	if _, err := tr.Transform(t.Context(), strings.Repeat("1 as any;\n", large/10+1)); err != nil {
		t.Error(err)
	}
	if tr.proc != nil {
		t.Error("the process is kept after a large source")
	}
	if _, err := tr.Transform(t.Context(), "1 as any"); err != nil {
		t.Error(err)
	}
}

// TestStart: what was started ahead answers the first source.
func TestStart(t *testing.T) {
	tr := open(t, self(t))
	tr.Start()
	first := tr.proc
	tr.Start()
	if _, err := tr.Transform(t.Context(), "1 as any"); err != nil || first == nil || tr.proc != first {
		t.Errorf("started %v, then %v: %v", first, tr.proc, err)
	}
	tr = open(t, self(t))
	tr.turn <- struct{}{} // another call has it
	tr.Start()
	<-tr.turn
	if tr.proc != nil {
		t.Error("started without the turn")
	}
	for _, path := range []string{"", "/nowhere/at/all"} {
		tr := open(t, path)
		tr.Start()
		if _, err := tr.Transform(t.Context(), "1"); !errors.Is(err, ErrMissing) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestEndIsRepaired: a process that somebody kills is no cell's problem.
func TestEndIsRepaired(t *testing.T) {
	tr := open(t, self(t))
	for range 3 {
		if _, err := tr.Transform(t.Context(), "1 as any"); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(tr.proc.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissing(t *testing.T) {
	for _, path := range []string{"", "/nowhere/at/all"} {
		if _, err := open(t, path).Transform(t.Context(), "1"); !errors.Is(err, ErrMissing) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestHostileProgram: whatever the program does, a call ends, and none of it is left.
func TestHostileProgram(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"ends":               {"exit 3", "TypeScript's compiler ended (exit status 3)"},
		"is killed":          {"kill -9 $$", "TypeScript's compiler ended (killed by SIGKILL)"},
		"says nothing":       {"sleep 60", "context deadline exceeded"},
		"reads and is mute":  {"cat > /dev/null; sleep 60", "context deadline exceeded"},
		"half an answer":     {`head -c 204804 > /dev/null; printf '\0\0\0\5jab'; sleep 60`, "context deadline exceeded"},
		"announces too much": {`head -c 204804 > /dev/null; printf '\377\377\377\377j'; sleep 60`, "too large"},
		"another answer":     {`head -c 204804 > /dev/null; printf '\0\0\0\2no'; sleep 60`, "neither JavaScript nor a syntax error"},
		"no JSON":            {`head -c 204804 > /dev/null; printf '\0\0\0\2e{'; sleep 60`, "answer about a syntax error"},
		"closes and stays":   {"exec >&- <&-; exec sleep 60", "TypeScript's compiler ended"},
	} {
		t.Run(name, func(t *testing.T) {
			// Before the others begin: what they start would inherit the file while it is
			// open for writing, and nobody can execute it then.
			path := filepath.Join(t.TempDir(), "program")
			guesttest.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755))
			t.Parallel()
			tr := open(t, path)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if c.want != context.DeadlineExceeded.Error() {
				ctx = t.Context()
			}
			_, err := tr.Transform(ctx, strings.Repeat("x", 200<<10)) // more than a pipe takes
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if tr.proc != nil {
				t.Error("the process is kept")
			}
		})
	}
}

// TestOneWaitsForAnother, and each has its own answer.
func TestOneWaitsForAnother(t *testing.T) {
	tr := open(t, self(t))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			want := fmt.Sprintf("const x%d = %d", i, i)
			if js, err := tr.Transform(t.Context(), fmt.Sprintf("const x%d: number = %d", i, i)); err != nil || !strings.Contains(js, want) {
				t.Errorf("%q %v", js, err)
			}
		})
	}
	all.Wait()
	slow := filepath.Join(t.TempDir(), "slow")
	guesttest.Must(t, os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
	tr = open(t, slow)
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() { _, _ = tr.Transform(ctx, "1") })
	guesttest.WaitFor(t, "the turn", func() bool { return len(tr.turn) == 1 })
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := tr.Transform(short, "1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	cancel()
	all.Wait()
}
