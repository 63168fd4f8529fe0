//go:build linux

package interpreter

import (
	"fmt"
	"testing"

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
