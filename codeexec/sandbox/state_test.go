//go:build linux

package sandbox_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func in(id, language, code string) codeexec.CodeExecutionInput {
	return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: language, Code: code}}, ExecutionID: id}
}

func execute(t *testing.T, e codeexec.CodeExecutor, i codeexec.CodeExecutionInput) codeexec.CodeExecutionResult {
	t.Helper()
	r, err := e.ExecuteCode(t.Context(), i)
	if err != nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	return r
}

// Where no sandbox can run, the error says why, and nothing runs.
func TestNewFailsClosed(t *testing.T) {
	for name, cfg := range map[string]sandbox.Config{
		"no binary":             {Embedded: embedded.Config{Binary: filepath.Join(t.TempDir(), "none")}},
		"a binary that is none": {Embedded: embedded.Config{Binary: "/bin/true"}},
		"no Python":             {Embedded: embedded.Config{Binary: testenv.Cubby(t), Python: "/none/python3"}},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.CheckLeaks(t)
			_, err := sandbox.New(t.Context(), cfg)
			if e, ok := errors.AsType[*cubby.Error](err); !ok || e.Code == 0 {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
			_, err = sandbox.NewPool(t.Context(), cfg, e2b.PoolConfig{})
			if err == nil {
				t.Error("a pool was made")
			}
		})
	}
	t.Run("a limit that makes no sense", func(t *testing.T) {
		testenv.CheckLeaks(t)
		for _, l := range []codeexec.ResourceLimits{{MemoryBytes: -1}, {MemoryBytes: 1}, {MaxPIDs: 1},
			{DiskBytes: 64 << 20, FileSizeBytes: 1 << 20}} {
			_, err := sandbox.New(t.Context(), sandbox.Config{Executor: e2b.Config{Limits: l}})
			if cubby.CodeOf(err) != cubby.CodeInvalidArgument && !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
				t.Errorf("%+v: got %v", l, err)
			}
		}
	})
}

// It starts a Cubby of its own, and leaves nothing behind.
func TestPrivateCubby(t *testing.T) {
	testenv.CheckLeaks(t)
	e := open(t, e2b.Config{Limits: codeexec.ResourceLimits{MemoryBytes: 300 << 20}, Env: map[string]string{"GREETING": "hello"}})
	if r := execute(t, e, in("a", "bash", "echo $GREETING")); r.Output != "hello\n" {
		t.Errorf("got %+v", r)
	}
	if d := e.Engine().Describe(); d.Isolation != "gvisor" || d.NetworkAllowed || !slices.Contains(d.Limits, "memory_bytes") {
		t.Errorf("got %+v", d)
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
}

// Workspaces are where the configuration says, one for each id if it says so.
func TestWorkspaceConfiguration(t *testing.T) {
	inputs := t.TempDir()
	if err := os.WriteFile(filepath.Join(inputs, "in.txt"), []byte("in"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := open(t, e2b.Config{Client: private(t), WorkspaceRoot: "/tmp/elsewhere", PersistentWorkspaces: true, HostInputs: inputs, User: "root"})
	create := func(id string) codeexec.Workspace {
		t.Helper()
		ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), id, codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
	a := create("a")
	if filepath.Dir(a.Path) != "/tmp/elsewhere" || create("a") != a || create("b") == a {
		t.Errorf("got %+v, %+v, %+v", a, create("a"), create("b"))
	}
	stage := func(from string) error {
		return e.Engine().FS().StageInputs(t.Context(), a, []codeexec.InputSpec{{From: "host://" + from, To: "work/in.txt"}})
	}
	if err := stage(filepath.Join(inputs, "in.txt")); err != nil {
		t.Error(err)
	}
	if err := stage("/etc/hostname"); cubby.CodeOf(err) != cubby.CodePermissionDenied && cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("an input from elsewhere: %v", err)
	}
	r, err := e.Engine().Runner().RunProgram(t.Context(), a, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", "id -un; cat work/in.txt"}})
	if err != nil || r.Stdout != "root\nin" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// What says how to reach a server is none of a private Cubby's.
func TestPrivateCubbyIsReachedByItsOwnClient(t *testing.T) {
	for name, cfg := range map[string]e2b.Config{
		"address": {APIURL: "http://127.0.0.1:1"}, "key": {APIKey: "k"}, "ports": {SandboxURL: "http://127.0.0.1:1"}, "domain": {Domain: "x.example"},
		"HTTP client": {HTTPClient: http.DefaultClient},
	} {
		if _, err := sandbox.New(t.Context(), sandbox.Config{Executor: cfg}); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each id has a folder for its files, which its languages share.
func TestConversationsHaveFoldersOfTheirOwn(t *testing.T) {
	e := open(t, e2b.Config{Client: private(t)})
	execute(t, e, in("a", "python", "open('mine', 'w').write('a')"))
	execute(t, e, in("b", "python", "open('mine', 'w').write('b')"))
	for _, id := range []string{"a", "b"} {
		for _, read := range []codeexec.CodeExecutionInput{
			in(id, "bash", "cat mine"), in(id, "python", "print(open('mine').read(), end='')"),
			in(id, "js", "process.stdout.write(require('fs').readFileSync('mine', 'utf8')); undefined"),
		} {
			if r := execute(t, e, read); r.Output != id {
				t.Errorf("%s of %s: %+v", read.CodeBlocks[0].Language, id, r)
			}
		}
	}
	for _, id := range []string{"../../etc", "/", "a/../b", strings.Repeat("x", 4096), "ü\n\x00"} {
		if r := execute(t, e, in(id, "python", "import os; print(os.path.dirname(os.getcwd()))")); r.Output != "/home/user/conversations\n" {
			t.Errorf("%.20q runs in %q", id, r.Output)
		}
	}
	_, err := e.ExecuteCode(t.Context(), in(strings.Repeat("x", 5000), "python", "1"))
	if cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("got %v", err)
	}
}

// Kernels cost memory: the id that was not used for longest loses its own.
func TestKernelsAreBounded(t *testing.T) {
	e := open(t, e2b.Config{Client: private(t), MaxKernels: 4})
	for i := range 5 {
		if r := execute(t, e, in(fmt.Sprint(i), "python", fmt.Sprintf("x = %d", i))); r.StateLost {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if r := execute(t, e, in("4", "python", "print(x)")); r.Output != "4\n" || r.StateLost {
		t.Errorf("got %+v", r)
	}
	r := execute(t, e, in("0", "python", "print(x)"))
	if r.Error == nil || r.Error.Type != "NameError" || !r.StateLost {
		t.Errorf("got %+v", r)
	}
	if r := execute(t, e, in("0", "python", "x = 0")); r.StateLost {
		t.Errorf("told twice: %+v", r)
	}
}

// Code that ends its kernel, or its sandbox, takes variables along; the next call
// works, and is told.
func TestStateLost(t *testing.T) {
	client := private(t)
	e := open(t, e2b.Config{Client: client, Timeout: 3 * time.Second})
	t.Run("with the kernel, in the same call", func(t *testing.T) {
		for _, id := range []string{"", "a"} {
			execute(t, e, in(id, "python", "x = 1"))
			r := execute(t, e, in(id, "python", "import os; os._exit(5)"))
			if !r.StateLost || r.Outcome != codeexec.OutcomeFailed {
				t.Errorf("got %+v", r)
			}
			if r := execute(t, e, in(id, "python", "print('x' in globals())")); r.Blocks[0].Stdout != "False\n" || r.StateLost {
				t.Errorf("got %+v", r)
			}
		}
	})
	t.Run("with the kernel, out of memory", func(t *testing.T) {
		small := open(t, e2b.Config{Client: client, Limits: codeexec.ResourceLimits{MemoryBytes: 200 << 20}})
		r := execute(t, small, in("a", "python", "x = []\nwhile True: x.append(bytearray(1 << 20))"))
		if r.Outcome != codeexec.OutcomeFailed || r.Limit != "memory" && (r.Error == nil || r.Error.Type != "MemoryError") {
			t.Errorf("got %+v", r)
		}
		if r := execute(t, small, in("a", "python", "print('again')")); r.Blocks[0].Stdout != "again\n" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("with the sandbox", func(t *testing.T) {
		execute(t, e, in("a", "python", "x = 1"))
		old := e.SandboxID()
		sbx, err := client.Get(t.Context(), old)
		if err == nil {
			err = sbx.Kill(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		// What was there a moment ago counts as there: this call may find out.
		r, err := e.ExecuteCode(t.Context(), in("a", "python", "print('x' in globals())"))
		if err != nil {
			if cubby.CodeOf(err) != cubby.CodeSandboxGone {
				t.Fatal(err)
			}
			r = execute(t, e, in("a", "python", "print('x' in globals())"))
		}
		if r.Output != "False\n" || !r.StateLost || e.SandboxID() == old {
			t.Errorf("got %+v in %s after %s", r, e.SandboxID(), old)
		}
	})
}

// Each call of its own: no file is left, not even outside of the home.
func TestFreshSandbox(t *testing.T) {
	client := private(t)
	e := open(t, e2b.Config{Client: client, FreshSandbox: true})
	execute(t, e, in("a", "bash", "touch /tmp/left ~/left"))
	if r := execute(t, e, in("a", "bash", "ls /tmp/left ~/left 2>/dev/null")); r.Output != "" {
		t.Errorf("got %+v", r)
	}
	n := 0
	for _, err := range client.List(t.Context(), cubby.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n > 1 {
		t.Errorf("%d sandboxes are left, want that of the workspaces", n)
	}
}

func TestPool(t *testing.T) {
	p, err := sandbox.NewPool(t.Context(), sandbox.Config{Executor: e2b.Config{Client: private(t)}}, e2b.PoolConfig{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	execute(t, p, in("a", "bash", "touch /tmp/mine"))
	if r := execute(t, p, in("b", "bash", "ls /tmp/mine")); r.ExitCode == 0 {
		t.Errorf("sessions share a sandbox: %+v", r)
	}
	if r := execute(t, p, in("a", "bash", "ls /tmp/mine")); r.Output != "/tmp/mine\n" {
		t.Errorf("got %+v", r)
	}
	execute(t, p, in("c", "bash", "true")) // instead of b
	if got := p.Sessions(); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("got %v", got)
	}
}

// A session whose sandbox was ended for want of room, for its idleness or by
// Release, is told when it comes back: through the pool, and through Get.
func TestPoolTellsWhoseSandboxHasEnded(t *testing.T) {
	p, err := sandbox.NewPool(t.Context(), sandbox.Config{Executor: e2b.Config{Client: private(t)}}, e2b.PoolConfig{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	first := execute(t, p, in("a", "python", "open('mine', 'w').write('a'); kept = 1"))
	last := first
	for name, back := range map[string]func() codeexec.CodeExecutor{
		"through the pool": func() codeexec.CodeExecutor { return p },
		"through Get": func() codeexec.CodeExecutor {
			e, err := p.Get(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	} {
		if r := execute(t, p, in("b"+name, "python", "1")); r.StateLost || r.FilesLost { // in a's place
			t.Errorf("a new session has lost nothing: %+v", r)
		}
		id := "a"
		if name == "through Get" {
			id = "" // the sandbox is all the session's
		}
		r := execute(t, back(), in(id, "python", "import os; print('kept' in globals() or os.path.exists('mine'))"))
		variables, files := r.Instance.Losses(last.Instance)
		if r.Output != "False\n" || !r.StateLost || !r.FilesLost || !variables || !files || r.Instance.Memory <= last.Instance.Memory ||
			r.Instance.Files <= last.Instance.Files {
			t.Errorf("%s: got %+v, before %+v", name, r, last.Instance)
		}
		last = execute(t, back(), in(id, "python", "kept = 1"))
		if last.StateLost || last.Instance != r.Instance {
			t.Errorf("%s: told twice: %+v, before %+v", name, last, r.Instance)
		}
	}
	if err := p.Release("a"); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, p, in("a", "python", "1")); !r.FilesLost {
		t.Errorf("got %+v", r)
	}
}

// A workspace that is kept is another one after its sandbox was lost, also when
// the same path is there again: nothing of the two is mistaken for the other.
func TestKeptWorkspaceThatIsLost(t *testing.T) {
	p, err := sandbox.NewPool(t.Context(), sandbox.Config{Executor: e2b.Config{Client: private(t)}}, e2b.PoolConfig{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e := p.Engine()
	kept := func() codeexec.Workspace {
		t.Helper()
		ws, err := e.Manager().CreateWorkspace(t.Context(), "a", codeexec.WorkspacePolicy{Persist: true})
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
	old := kept()
	if err := e.FS().PutFiles(t.Context(), old, []codeexec.PutFile{{Path: "work/x", Content: []byte("old")}}); err != nil {
		t.Fatal(err)
	}
	execute(t, p, in("b", "python", "1")) // in a's place
	now := kept()
	if now == old || now.Path != old.Path || now.Instance == "" {
		t.Errorf("it was %+v, and now is %+v", old, now)
	}
	if err := e.FS().PutFiles(t.Context(), now, []codeexec.PutFile{{Path: "work/x", Content: []byte("new")}}); err != nil {
		t.Fatal(err)
	}
	_, err = e.FS().Collect(t.Context(), old, []string{"work/x"})
	if !errors.Is(err, codeexec.ErrWorkspaceStale) || !codeexec.IsWorkspaceRetrySafe(err) {
		t.Errorf("got %v", err)
	}
	if err := e.Manager().Cleanup(t.Context(), old); err != nil {
		t.Error(err)
	}
	if files, err := e.FS().Collect(t.Context(), now, []string{"work/x"}); err != nil || len(files) != 1 || string(files[0].Content) != "new" {
		t.Errorf("the end of the old one has reached the new one: %v, %v", files, err)
	}
}

// A session's workspaces end with its sandbox, and say so.
func TestWorkspacesOfAPool(t *testing.T) {
	p, err := sandbox.NewPool(t.Context(), sandbox.Config{Executor: e2b.Config{Client: private(t)}}, e2b.PoolConfig{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e := p.Engine()
	make := func(id string) codeexec.Workspace {
		t.Helper()
		ws, err := e.Manager().CreateWorkspace(t.Context(), id, codeexec.WorkspacePolicy{Persist: true})
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
	a := make("a")
	if make("a") != a {
		t.Error("a workspace that persists was made twice")
	}
	if err := e.FS().PutFiles(t.Context(), a, []codeexec.PutFile{{Path: "work/x", Content: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	// Code and programs of a session are in one place.
	if r := execute(t, p, in("a", "bash", "cat "+a.Path+"/work/x")); r.Output != "x" {
		t.Errorf("got %+v", r)
	}
	s, err := e.Runner().StartProgram(t.Context(), a, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "cat"}})
	if err != nil {
		t.Fatal(err)
	}
	make("b")
	make("c") // instead of b: in a something runs
	if got := p.Sessions(); !slices.Contains(got, "a") || slices.Contains(got, "b") {
		t.Errorf("got %v", got)
	}
	if err := errors.Join(s.Close(), p.Release("a")); err != nil {
		t.Error(err)
	}
	_, err = e.Runner().RunProgram(t.Context(), a, codeexec.RunProgramSpec{Cmd: "true"})
	if !errors.Is(err, codeexec.ErrWorkspaceStale) || !codeexec.IsWorkspaceRetrySafe(err) || slices.Contains(p.Sessions(), "a") {
		t.Errorf("got %v, %v", err, p.Sessions())
	}
	if err := errors.Join(e.Manager().Cleanup(t.Context(), a), e.Manager().CleanupID(t.Context(), "a")); err != nil {
		t.Error(err)
	}
	if _, err := e.FS().Collect(t.Context(), make("a"), []string{"**"}); err != nil {
		t.Error(err)
	}
}

// Code connects to what the configuration names, and to nothing else.
func TestNetwork(t *testing.T) {
	testenv.CheckLeaks(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer srv.Close()
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	e, err := sandbox.New(t.Context(), sandbox.Config{
		Embedded: embedded.Config{Binary: testenv.Cubby(t), HostPorts: []int{port}},
		Executor: e2b.Config{Network: &cubby.Network{Allow: []string{"host.cubby.internal"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const fetch = "exec 3<>/dev/tcp/%s/%d && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3"
	if r := execute(t, e, in("a", "bash", fmt.Sprintf(fetch, "host.cubby.internal", port))); strings.TrimSpace(r.Output) != "hello" {
		t.Errorf("got %+v", r)
	}
	// What fails because of the network says how to open it.
	r := execute(t, e, in("a", "bash", fmt.Sprintf(fetch, "example.com", 80)))
	if !strings.Contains(r.Output, "Name or service not known") || !strings.Contains(r.Output, "\nnetwork: ") || !strings.Contains(r.Output, "allow example.com") {
		t.Errorf("got %+v", r)
	}
	if !e.Engine().Describe().NetworkAllowed {
		t.Error("it says that it has no network")
	}
}
