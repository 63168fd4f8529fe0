//go:build linux

package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// TestFamilies: sockets that lead elsewhere than to the container's own network
// cannot be made, also where Docker's own filter allows them, by no program.
func TestFamilies(t *testing.T) {
	e := open(t, Config{Customize: func(_ *container.Config, h *container.HostConfig) {
		h.SecurityOpt = append(h.SecurityOpt, "seccomp=unconfined")
	}})
	const code = `
import ctypes, errno, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
made = []
for family in range(64):
    for kind in (1, 2, 3, 5):
        fd = libc.socket(family, kind, 0)
        if fd >= 0: made.append(family)
made += ["netlink %d" % p for p in range(1, 32) if libc.socket(16, 3, p) >= 0]
print(sorted(set(map(str, made))))
a, b = socket.socketpair(); a.send(b"x"); b.recv(1)
l = socket.create_server(("127.0.0.1", 0)); socket.create_connection(l.getsockname()).close()
print(socket.if_nameindex()[0][1])
ring = libc.syscall(425, 1, ctypes.create_string_buffer(256))
print(ring, errno.errorcode[ctypes.get_errno()])
`
	const want = "['1', '10', '16', '2']\nlo\n-1 ENOSYS\n"
	wantOutput(t, mustRun(t, e, python(code)), want)
	ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Engine().Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", "exec python3 -"}, Stdin: code})
	if err != nil || r.Stdout != want {
		t.Errorf("a workspace's program: got %+v, %v", r, err)
	}
}

// Whatever a block leaves, the next one runs: what can be undone is, and else the
// container is replaced, and that is said.
func TestLeavings(t *testing.T) {
	e := open(t, Config{MemoryBytes: 256 << 20, DiskBytes: 32 << 20, Timeout: time.Minute})
	for _, tc := range []struct {
		name, code string
		lost       bool // the files are
	}{
		{"System V segments", `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
for i in range(10):
    at = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 16 << 20)
    libc.shmdt(at)
print("made", flush=True)
`, false},
		{"System V queues and semaphores", `
import ctypes
libc = ctypes.CDLL(None)
for i in range(100):
    q = libc.msgget(0, 0o600)
    libc.msgsnd(q, ctypes.create_string_buffer(b"\1" + bytes(8191)), 8000, 0o4000)
    libc.semget(0, 100, 0o600)
`, false},
		{"a folder in a block's place", "import os; os.remove('.block_1.py'); os.makedirs('.block_1.py/x/y'); os.chmod('.block_1.py/x', 0); os.makedirs('.block_1.sh/x')", false},
		{"folders without permissions", "import os; os.system('chmod -R 0 /tmp/run; chmod 0 /tmp')", false},
		{"no working directory", "import os, shutil; shutil.rmtree(os.getcwd())", false},
		{"no workspaces", "import shutil; shutil.rmtree('/tmp/run')", false},
		{"a file in the workspaces' place", "import shutil; shutil.rmtree('/tmp/run'); open('/tmp/run', 'w')", true},
		{"a link to nowhere in the workspace's place", "import os; d = os.path.dirname(os.getcwd()); os.rename(d, '/tmp/x'); os.symlink('/nowhere', d)", true},
		{"shared memory", "\ntry:\n    open('/dev/shm/x', 'wb').write(bytes(1 << 26))\nexcept OSError: pass", false},
		{"many folders of shared memory", `
import os
os.chdir("/dev/shm")
try:
    for i in range(1000):
        os.mkdir("d" * 200); os.chdir("d" * 200)
except OSError: pass
os.chdir("/dev/shm")
try:
    for i in range(100000): os.makedirs("%d/x/y" % i); os.chmod("%d/x" % i, 0)
except OSError: pass
`, false},
		{"message queues", `
import ctypes
rt = ctypes.CDLL(None)
print(len([1 for i in range(20) if rt.mq_open(b"/q%d" % i, 0o102, 0o600, None) >= 0]) > 0, flush=True)
`, false},
		{"a full disk", "\ntry:\n    open('big', 'wb').write(bytes(1 << 26))\nexcept OSError: pass", false},
		{"lower limits of the agent", "import resource as r; [r.prlimit(1, l, (20, 20)) for l in (r.RLIMIT_NOFILE, r.RLIMIT_NPROC)]", true},
		{"lower soft limits of the agent", "import resource as r; r.prlimit(1, r.RLIMIT_NOFILE, (4, 4096)); r.prlimit(1, r.RLIMIT_STACK, (8192, r.RLIM_INFINITY))", false},
		{"an agent of little memory", "import resource as r; r.prlimit(1, r.RLIMIT_AS, (1 << 20, 1 << 20))", true},
		{"no files for the agent", "import resource as r; r.prlimit(1, r.RLIMIT_FSIZE, (0, 0))", true},
		{"an agent that is idle", "import os; os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)); os.sched_setaffinity(1, {min(os.sched_getaffinity(0))}); os.setpriority(os.PRIO_USER, 0, 19)", false},
		{"all signals", "import os, signal\nfor s in signal.valid_signals(): os.kill(1, s)\nif os.fork() == 0: os.pause()\nos.kill(-1, 19)", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := mustRun(t, e, python("open('kept', 'w').write('x')"))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			first, err := e.ExecuteCode(ctx, python(tc.code))
			if err != nil || first.ExitCode != 0 {
				t.Errorf("the block: got %+v, %v", first, err)
			}
			r, err := e.ExecuteCode(ctx, python(`
import glob, os
print(os.listdir("/dev/shm"), os.listdir("/dev/mqueue"), [len(open(f).readlines()) for f in glob.glob("/proc/sysvipc/*")], len(os.sched_getaffinity(0)) == os.cpu_count(), end=" ")
x = bytearray(150 << 20)
print("runs")`))
			if err != nil || r.Output != "[] [] [1, 1, 1] True runs\n" {
				t.Errorf("the next: got %+v, %v", r, err)
			}
			if _, files := r.Instance.Losses(before.Instance); r.StateLost != tc.lost || r.FilesLost != tc.lost || files != tc.lost {
				t.Errorf("it is said that files are lost: %v, %v, %v", r.StateLost, r.FilesLost, files)
			}
			if tc.name == "a full disk" {
				mustRun(t, e, bash("rm -f /tmp/run/*/work/big"))
			}
		})
	}
}

// What one execution id does stays with it: no other reads its files, ends its
// programs, uses up its disk, memory or processes, or is held up.
func TestIDsAreApart(t *testing.T) {
	e := open(t, Config{DiskBytes: 32 << 20, MaxPIDs: 40})
	of := func(id string, in codeexec.CodeExecutionInput) codeexec.CodeExecutionInput {
		in.ExecutionID = id
		return in
	}
	mustRun(t, e, of("victim", python("open('kept', 'w').write('x')")))
	ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "victim", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Engine().Runner().StartProgram(t.Context(), ws,
		codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "cat"}})
	if err != nil {
		t.Fatal(err)
	}
	attacked, ended := make(chan string, 1000), make(chan error, 1)
	attack := of("attacker", python(`
import ctypes, os, signal
print(os.listdir("/tmp/run") + [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())])
for place in ("/tmp/x", "/dev/shm/x"):
    try: open(place, "wb").write(bytes(1 << 27))
    except OSError: pass
ctypes.CDLL(None).shmget(0x1234, 16 << 20, 0o1666)
os.system("chmod -R 0 /tmp/run")
for i in range(100):
    try:
        if os.fork() == 0: signal.pause()
    except OSError: break
os.kill(-1, signal.SIGSTOP)
print("attacked", flush=True)
signal.pause()
`))
	attack.OnOutput = func(_, text string) { attacked <- text }
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := e.ExecuteCode(ctx, attack)
		ended <- err
	}()
	said := ""
	for !strings.Contains(said, "attacked") {
		select {
		case text := <-attacked:
			said += text
		case err := <-ended:
			t.Fatalf("the attacker ended: %q, %v", said, err)
		}
	}
	if files, _, _ := strings.Cut(said, "\n"); strings.Count(files, "'") != 2 {
		t.Errorf("it finds %s", files)
	}
	r := mustRun(t, e, of("victim", python(`
import ctypes, os
print(open("kept").read(), ctypes.CDLL(None).shmget(0x1234, 1, 0), os.listdir("/dev/shm"))
open("big", "wb").write(bytes(16 << 20))
os.fork()
`)))
	if r.Output != "x -1 []\n" || r.ExitCode != 0 || r.StateLost {
		t.Errorf("got %+v", r)
	}
	if err := s.Write("alive", true); err != nil {
		t.Error(err)
	}
	for out := ""; !strings.Contains(out, "alive"); time.Sleep(time.Millisecond) {
		poll := s.Poll(nil)
		if out += poll.Output; poll.Status == codeexec.StatusExited {
			t.Fatal("the victim's program has ended")
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the attacker was not ended")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Containers are bounded in number: the one that was not used for longest makes
// room, which its id is told, and those where something runs do not.
func TestMaxContainers(t *testing.T) {
	e := open(t, Config{MaxContainers: 2})
	ctx := t.Context()
	run := func(id string) codeexec.CodeExecutionResult {
		t.Helper()
		r, err := e.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "import os\nprint(os.path.exists('f')); open('f', 'w')", ExecutionID: id})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, step := range []struct{ id, output string }{{"a", "False\n"}, {"b", "False\n"}, {"a", "True\n"}, {"c", "False\n"}, {"a", "True\n"}} {
		if r := run(step.id); r.Output != step.output || r.StateLost {
			t.Errorf("%s: got %+v", step.id, r)
		}
	}
	if r := run("b"); r.Output != "False\n" || !r.StateLost || !r.FilesLost || r.Instance.Files != 2 {
		t.Errorf("b had to go: got %+v", r)
	}
	if r := run("b"); r.Output != "True\n" || r.StateLost || r.Instance.Files != 2 {
		t.Errorf("it is said again: %+v", r)
	}
	var all []codeexec.ProgramSession
	var places []codeexec.Workspace
	for _, id := range []string{"a", "b"} {
		ws, err := e.Engine().Manager().CreateWorkspace(ctx, id, codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Engine().Runner().StartProgram(ctx, ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "cat"}})
		if err != nil {
			t.Fatal(err)
		}
		all, places = append(all, s), append(places, ws)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := e.ExecuteCode(short, codeexec.CodeExecutionInput{Code: "1", ExecutionID: "d"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("something runs in both: got %v", err)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if r := run("d"); r.Output != "False\n" {
		t.Errorf("got %+v", r)
	}
	if _, err := e.Engine().Runner().RunProgram(ctx, places[0], codeexec.RunProgramSpec{Cmd: "true"}); !errors.Is(err,
		codeexec.ErrWorkspaceStale) || !codeexec.IsWorkspaceRetrySafe(err) {
		t.Errorf("the workspace is gone with its container: got %v", err)
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
}

// A result beside an error is never that of code that went well.
func TestFailedResult(t *testing.T) {
	e := open(t, Config{})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, do := range map[string]func() (codeexec.CodeExecutionResult, error){
		"canceled": func() (codeexec.CodeExecutionResult, error) { return e.ExecuteCode(canceled, python("1")) },
		"no id": func() (codeexec.CodeExecutionResult, error) {
			return e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "1", ExecutionID: strings.Repeat("x", 1<<20)})
		},
		"a file of no name": func() (codeexec.CodeExecutionResult, error) {
			return e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "1", InputFiles: []codeexec.File{{Name: "../x"}}})
		},
		"a bad pattern": func() (codeexec.CodeExecutionResult, error) {
			return e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "1", Collect: []string{"["}})
		},
	} {
		if r, err := do(); err == nil || r.Outcome == codeexec.OutcomeOK || r.ExitCode == 0 {
			t.Errorf("%s: got %+v, %v", what, r, err)
		}
	}
}

// TestStopped: a workspace's program that stops, ends or holds whatever it finds
// holds nobody up for good: the container is replaced, and that is said.
func TestStopped(t *testing.T) {
	const loop = "import ctypes, os\nlibc = ctypes.CDLL(None)\nprint('begun')\nwhile True:\n    try: %s\n    except (OSError, ValueError): pass"
	const tries = 200 // a program that is short may escape
	e := open(t, Config{Timeout: 5 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	attacked := func(t *testing.T, attack string) (codeexec.Workspace, codeexec.ProgramSession) {
		t.Helper()
		ws, err := e.Engine().Manager().CreateWorkspace(ctx, "", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Engine().Runner().StartProgram(ctx, ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{
			Cmd: "python3", Args: []string{"-u", "-c", fmt.Sprintf(loop, attack)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for begun := ""; !strings.Contains(begun, "begun"); time.Sleep(time.Millisecond) {
			begun += s.Poll(nil).Output
			if ctx.Err() != nil {
				t.Fatal("it does not begin")
			}
		}
		t.Cleanup(func() { s.Close() }) // it has ended, unless the test has failed
		return ws, s
	}
	for name, attack := range map[string]string{
		"it stops":  "os.kill(-1, 19)",
		"it ends":   "os.kill(-1, 9)",
		"it traces": "[libc.ptrace(0x4206, int(p), 0, 0) for p in os.listdir('/proc') if p.isdigit() and int(p) > 1]",
	} {
		t.Run(name, func(t *testing.T) {
			_, s := attacked(t, attack)
			id := e.ContainerID("")
			r, err := e.ExecuteCode(ctx, python("print('runs')"))
			for try := 0; try < tries && err == nil && e.ContainerID("") == id; try++ { // it was too late
				r, err = e.ExecuteCode(ctx, python("print('runs')"))
			}
			if errors.Is(err, ErrContainerGone) { // the block itself was hit
				r, err = e.ExecuteCode(ctx, python("print('runs')"))
			}
			if err != nil || r.Output != "runs\n" || !r.FilesLost || e.ContainerID("") == id {
				t.Fatalf("got %+v, %v", r, err)
			}
			if _, err := s.Wait(ctx); err == nil {
				t.Error("the program's end is no error")
			}
		})
	}
	t.Run("other programs", func(t *testing.T) {
		ws, s := attacked(t, "os.kill(-1, 19)")
		id := e.ContainerID("")
		for try := 0; e.ContainerID("") == id; try++ {
			// One that is begun and stopped, or cannot begin, has this call or the next
			// replace the container.
			r, err := e.Engine().Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "true", Timeout: 2 * time.Second})
			if try == tries {
				t.Fatalf("got %+v, %v", r, err)
			}
		}
		if _, err := e.Engine().Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "true"}); !codeexec.IsWorkspaceRetrySafe(err) {
			t.Errorf("the workspace is gone: got %v", err)
		}
		if _, err := s.Wait(ctx); err == nil {
			t.Error("the program's end is no error")
		}
	})
}
