//go:build linux

package interpreter

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernelproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestWarm: a language's kernel is started once, however often that is asked for,
// and one that ended is not replaced behind its user's back.
func TestWarm(t *testing.T) {
	b := newBox(t)
	running := func() *kernelproc.Process { return b.g.byDefault(settings.Python).process() }
	warm := func() {
		t.Helper()
		b.tell(protocol.InitRequest{Warm: []string{"py", settings.Python, "cobol"}})
	}
	warm()
	guesttest.WaitFor(t, "the kernel", func() bool { return running() != nil })
	first := running()
	warm()
	if a := b.run(guesttest.Call{Code: "import os; x = 1; print(os.getpid())"}); a.Stdout != fmt.Sprintln(first.PID()) || a.End.FreshKernel {
		t.Errorf("another kernel ran: %q", a.Stdout)
	}
	warm()
	if a := b.run(guesttest.Call{Code: "print(x)"}); a.Stdout != "1\n" {
		t.Errorf("%q %q", a.Stdout, a.Stderr)
	}
	if n := len(b.g.contexts.all); n != 1 {
		t.Errorf("%d contexts", n)
	}
	b.run(guesttest.Call{Code: "os._exit(3)"})
	warm()
	if running() != nil {
		t.Error("a kernel that ended was replaced before anybody was told")
	}
	if a := b.run(guesttest.Call{Code: "print(2)"}); a.Stdout != "2\n" || !a.End.FreshKernel {
		t.Errorf("%q, fresh: %v", a.Stdout, a.End.FreshKernel)
	}
}

// TestCompilerStartsBesideTheKernel: of TypeScript, and for no other language. The kernel
// here gets ready only once the compiler has been started.
func TestCompilerStartsBesideTheKernel(t *testing.T) {
	var started string
	beside := func(cfg *settings.Config) {
		node := cfg.Interpreters[settings.JavaScript]
		if node == "" {
			t.Skip("no node here")
		}
		dir := t.TempDir()
		started = filepath.Join(dir, "started")
		script := func(name, text string) string {
			path := filepath.Join(dir, name)
			guesttest.Must(t, os.WriteFile(path, []byte("#!/bin/bash\n"+text+"\n"), 0o755))
			return path
		}
		cfg.TypeScript = script("compiler", fmt.Sprintf("touch %s; exec -a cubby-typescript %s", started, cfg.TypeScript))
		cfg.Interpreters[settings.JavaScript] = script("node", fmt.Sprintf(
			`for i in {1..400}; do [ -e %s ] && exec %s "$@"; sleep 0.01; done; echo "no compiler beside"; exit 1`, started, node))
	}
	enum := guesttest.Call{Language: settings.TypeScript, Code: "enum E { A = 7 }; console.log(E.A)"}
	for name, first := range map[string]func(*box) guesttest.Call{
		"warm": func(b *box) guesttest.Call {
			b.tell(protocol.InitRequest{Warm: []string{"js", "ts"}})
			guesttest.WaitFor(t, "the kernel", func() bool { return b.g.byDefault(settings.JavaScript).process() != nil })
			return enum
		},
		"context": func(b *box) guesttest.Call {
			resp, text := guesttest.Do(b, b.code, http.MethodPost, "/contexts", strings.NewReader(`{"language": "ts"}`))
			if resp.StatusCode != http.StatusOK {
				t.Fatal(text)
			}
			return enum
		},
		"cell": func(*box) guesttest.Call { return enum },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, beside)
			if a := b.run(first(b)); a.Stdout != "7\n" {
				t.Errorf("%q %q", a.Stdout, a.Stderr)
			}
		})
	}
	t.Run("JavaScript", func(t *testing.T) {
		b := newBox(t, beside)
		guesttest.Must(t, os.WriteFile(started, nil, 0o600), os.Chtimes(started, time.Unix(1, 0), time.Unix(1, 0)))
		b.tell(protocol.InitRequest{Warm: []string{"js"}})
		if a := b.run(guesttest.Call{Language: settings.JavaScript, Code: "console.log(7)"}); a.Stdout != "7\n" {
			t.Errorf("%q %q", a.Stdout, a.Stderr)
		}
		if st, err := os.Stat(started); err != nil || st.ModTime().Unix() != 1 {
			t.Errorf("the compiler was started: %v %v", st.ModTime(), err)
		}
	})
}
