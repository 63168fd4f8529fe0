//go:build linux

package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

func python(code string) codeexec.CodeExecutionInput {
	return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Code: code, Language: "python"}}}
}

func bash(code string) codeexec.CodeExecutionInput {
	return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Code: code, Language: "bash"}}}
}

func mustRun(t *testing.T, e *Executor, in codeexec.CodeExecutionInput) codeexec.CodeExecutionResult {
	t.Helper()
	r, err := e.ExecuteCode(t.Context(), in)
	if err != nil {
		t.Fatalf("ExecuteCode: %v", err)
	}
	return r
}

// settled returns the container of the execution id "", which it makes.
func settled(t *testing.T, e *Executor) string {
	t.Helper()
	mustRun(t, e, bash(":"))
	return e.ContainerID("")
}

func wantOutput(t *testing.T, r codeexec.CodeExecutionResult, want string) {
	t.Helper()
	if r.Output != want {
		t.Errorf("got %.600q, want %q", r.Output, want)
	}
}

// What the code can find out about its walls.
func TestHardened(t *testing.T) {
	e := open(t, Config{})
	r := mustRun(t, e, bash(`
id -u; id -g
grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status | tr '\t' ' '
ls /sys/class/net | tr '\n' ' '; echo
for f in /x /etc/x /usr/x /root/x /var/x /run/x; do (echo > $f) 2>/dev/null && echo "written: $f"; done
chmod 644 /etc/passwd 2>/dev/null && echo "chmod"
mount -t tmpfs x /mnt 2>/dev/null && echo mount
ls -A /var/run/docker.sock /run/docker.sock 2>/dev/null
ulimit -c
`))
	for _, want := range []string{"1000\n1000\n", "CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2", "\nlo \n0\n"} {
		if !strings.Contains(r.Output, want) {
			t.Errorf("%q is missing in %q", want, r.Output)
		}
	}
	t.Run("network", func(t *testing.T) {
		r := mustRun(t, e, python(`
import socket
for address in [("1.1.1.1", 53), ("169.254.169.254", 80), ("172.17.0.1", 2375)]:
    s = socket.socket(); s.settimeout(5)
    try: s.connect(address); print("connected to", address)
    except OSError: pass
`))
		wantOutput(t, r, "")
	})
	t.Run("what the daemon was told", func(t *testing.T) {
		got, err := dockerClient(t).ContainerInspect(t.Context(), e.ContainerID(""), client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h := got.Container.HostConfig
		if !h.ReadonlyRootfs || h.Privileged || h.NetworkMode != "none" || fmt.Sprint(h.CapDrop) != "[ALL]" || len(h.CapAdd) != 0 || !h.AutoRemove ||
			h.Memory != DefaultMemoryBytes || h.MemorySwap != h.Memory || h.NanoCPUs != 1e9*DefaultCPUs ||
			*h.PidsLimit != DefaultMaxPIDs || len(h.Binds) != 0 || len(h.DeviceRequests) != 0 {
			t.Errorf("got %+v", h)
		}
	})
}

// Code that tries to outlive its block, to end the agent or to speak for it.
func TestHostileProcesses(t *testing.T) {
	e := open(t, Config{Timeout: 20 * time.Second})
	id := settled(t, e)
	alive := func(t *testing.T) {
		t.Helper()
		wantOutput(t, mustRun(t, e, bash(`for p in /proc/[0-9]*; do [ "$p" = /proc/1 ] || [ "$p" = /proc/$$ ] || echo "$p"; done; echo end`)), "end\n")
		if e.ContainerID("") != id {
			t.Error("the container was replaced")
		}
	}
	t.Run("leftovers end with the block", func(t *testing.T) {
		r := mustRun(t, e, python(`
import os, subprocess, time
for i in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            for fd in range(3): os.close(fd)
            time.sleep(1000)
        os._exit(0)
subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; setsid sleep 1000 & setsid sleep 1000"], start_new_session=True)
print("left", flush=True)
`))
		wantOutput(t, r, "left\n")
		alive(t)
	})
	t.Run("a leftover whose first thread has ended", func(t *testing.T) {
		r := mustRun(t, e, python(`
import ctypes, os, platform, threading, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.close(fd)
    threading.Thread(target=lambda: (os.write(w, b"x"), time.sleep(1000))).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
os.read(r, 1)
time.sleep(0.2)
print("left")
`))
		wantOutput(t, r, "left\n")
		alive(t)
	})
	t.Run("leftovers that hold the output open", func(t *testing.T) {
		r := mustRun(t, e, bash("(while :; do echo more; sleep 0.01; done) & setsid sleep 1000 & exit 0"))
		if r.TimedOut || r.ExitCode != 0 {
			t.Errorf("got %+v", r)
		}
		alive(t)
	})
	t.Run("signals to everything", func(t *testing.T) {
		r := mustRun(t, e, bash("trap '' TERM; for s in TERM INT HUP PIPE CHLD STOP KILL; do kill -s $s 1; kill -s $s -1; done; echo survived"))
		if r.TimedOut {
			t.Errorf("got %+v", r)
		}
		alive(t)
	})
	t.Run("nothing of the agent can be read or written", func(t *testing.T) {
		r := mustRun(t, e, python(`
import os, ctypes
for path in ["/proc/1/mem", "/proc/1/fd/0", "/proc/1/fd/1", "/proc/1/environ"]:
    for mode in ("rb", "wb"):
        try: open(path, mode); print("opened", path, mode)
        except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, 1, 0, 0) == 0: print("traced")
`))
		wantOutput(t, r, "")
		alive(t)
	})
	t.Run("a fork bomb", func(t *testing.T) {
		// Each of them forks, as long as it can.
		r := mustRun(t, e, python(`
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass
`))
		if !r.TimedOut || r.Limit != "time" {
			t.Errorf("got %+v", r)
		}
		alive(t)
	})
	t.Run("a fork bomb that leaves its session and ends itself", func(t *testing.T) {
		r := mustRun(t, e, python(`
import os, sys
print("begun", flush=True)
os.close(1); os.close(2)
def bomb():
    while True:
        try:
            if os.fork() == 0: os.setsid()
            else: os._exit(0)
        except OSError: pass
if os.fork() == 0:
    os.setsid(); os.fork(); os.fork(); os.fork(); bomb()
`))
		wantOutput(t, r, "begun\n")
		alive(t)
	})
	t.Run("processes are bounded, and it is said", func(t *testing.T) {
		r := mustRun(t, e, python("import os, time\nfor i in range(1000):\n    if os.fork() == 0: time.sleep(1000)\n"))
		if r.Error == nil || r.Error.Type != "BlockingIOError" || r.Limit != "processes" {
			t.Errorf("got %+v, %+v", r, r.Error)
		}
		alive(t)
	})
	t.Run("descriptors are bounded", func(t *testing.T) {
		r := mustRun(t, e, python("f = []\nwhile True: f.append(open('/dev/null'))"))
		if r.Error == nil || r.Error.Type != "OSError" || !strings.Contains(r.Error.Message, "Too many open files") {
			t.Errorf("got %+v", r.Error)
		}
		alive(t)
	})
}

// Memory and disk.
func TestHostileBounds(t *testing.T) {
	e := open(t, Config{MemoryBytes: 128 << 20, DiskBytes: 32 << 20})
	id := settled(t, e)
	t.Run("memory", func(t *testing.T) {
		r := mustRun(t, e, python("print('begun', flush=True)\nx = []\nwhile True: x.append(bytearray(1 << 20))"))
		if r.ExitCode != codeexec.ExitOutOfMemory || r.Limit != "memory" || r.Outcome != codeexec.OutcomeFailed {
			t.Errorf("got %+v", r)
		}
		wantOutput(t, mustRun(t, e, python("print('still')")), "still\n")
	})
	t.Run("memory, by many", func(t *testing.T) {
		r := mustRun(t, e, python(`
import os
x = []
for i in range(20):
    if os.fork() == 0:
        while True: x.append(bytearray(1 << 20))
failed = 0
while True:
    try: failed += os.wait()[1] != 0
    except ChildProcessError: break
print(failed)
`))
		wantOutput(t, r, "20\n")
		wantOutput(t, mustRun(t, e, python("print('still')")), "still\n")
	})
	t.Run("disk", func(t *testing.T) {
		r := mustRun(t, e, python("with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))"))
		if r.Error == nil || r.Limit != "disk" || !strings.Contains(r.Error.Message, "No space left") {
			t.Errorf("got %+v", r)
		}
		// Nothing can be put now, and code runs still: it can make room.
		_, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "1",
			InputFiles: []codeexec.File{{Name: "f", Content: make([]byte, 1<<20)}}})
		if cubby.CodeOf(err) != cubby.CodeNoSpace {
			t.Errorf("got %v", err)
		}
		r = mustRun(t, e, python("import glob, os\nfor f in glob.glob('/tmp/run/*/work/*'): os.remove(f)\nprint('room')"))
		wantOutput(t, r, "room\n")
		wantOutput(t, mustRun(t, e, python("open('f', 'w').write('x'); print('written')")), "written\n")
	})
	t.Run("inodes", func(t *testing.T) {
		r := mustRun(t, e, bash(`mkdir -p /tmp/many; python3 -c '
import itertools
for i in itertools.count(): open("/tmp/many/%d" % i, "w").close()' 2>&1 | tail -1; rm -rf /tmp/many`))
		if !strings.Contains(r.Output, "No space left") {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("shared memory counts", func(t *testing.T) {
		r := mustRun(t, e, python("with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))"))
		if r.Error == nil || !strings.Contains(r.Error.Message, "No space left") {
			t.Errorf("got %+v", r)
		}
		mustRun(t, e, bash("rm -f /dev/shm/x"))
	})
	if e.ContainerID("") != id {
		t.Error("the container was replaced")
	}
}

// Floods of output end in the container: the host keeps what it was told to.
func TestHostileOutput(t *testing.T) {
	e := open(t, Config{Timeout: 5 * time.Second, MaxOutput: 1 << 20})
	for _, code := range []string{"yes", "yes >&2", "yes & yes >&2", `while :; do head -c 70000 /dev/zero; head -c 70000 /dev/zero >&2; done`} {
		r := mustRun(t, e, bash(code))
		if !r.TimedOut || !r.Truncated || len(r.Output) > 1<<20 || len(r.Output) < 1<<19 {
			t.Errorf("%s: %d bytes, timed out %v, truncated %v, exit code %d, %v", code, len(r.Output), r.TimedOut, r.Truncated, r.ExitCode, r.Limit)
		}
	}
}

// TestClose: closing ends what runs, and what is being started.
func TestClose(t *testing.T) {
	needDocker(t)
	for what, cfg := range map[string]Config{"resident": {}, "fresh": {Fresh: true}} {
		t.Run(what, func(t *testing.T) {
			e := open(t, cfg)
			errs := make(chan error)
			for range 3 {
				go func() {
					_, err := e.ExecuteCode(context.Background(), bash("sleep 600"))
					errs <- err
				}()
			}
			time.Sleep(time.Second) // whether they run by then does not matter
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			for range 3 {
				if err := <-errs; cubby.CodeOf(err) != cubby.CodeConflict || !strings.Contains(err.Error(), "closed") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// TestReset: a caller can give the container up.
func TestReset(t *testing.T) {
	e := open(t, Config{})
	mustRun(t, e, bash("echo x > f"))
	if err := e.Reset(""); err != nil {
		t.Fatal(err)
	}
	if r := mustRun(t, e, bash("cat f 2>/dev/null; echo new")); r.Output != "new\n" || !r.StateLost {
		t.Errorf("got %+v", r)
	}
}

// TestOpened: what is asked for is given, and no more.
func TestOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/in", []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := open(t, Config{
		Binds: []string{dir + ":/data:ro"}, Network: "host", User: "65534:65534", Env: map[string]string{"MINE": "a b"}, NamePrefix: "mine-",
		Labels: map[string]string{"x": "y"}, CPUs: 0.5, MaxPIDs: 50, WorkspaceRoot: "/tmp/elsewhere", Delimiters: []codeexec.CodeBlockDelimiter{{Start: "```tool_code\n", End: "\n```"}},
	})
	r := mustRun(t, e, bash("id -u; cat /data/in; echo; echo x 2>/dev/null > /data/out; ls /data; echo $MINE; pwd | cut -d/ -f1-3"))
	wantOutput(t, r, "65534\nfrom the host\nin\na b\n/tmp/elsewhere\n")
	got, err := dockerClient(t).ContainerInspect(t.Context(), e.ContainerID(""), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Container; !strings.HasPrefix(c.Name, "/mine-") || c.HostConfig.NanoCPUs != 5e8 ||
		*c.HostConfig.PidsLimit != 50 || c.Config.Labels[labelOwner] != owner() {
		t.Errorf("got %s, %+v", c.Name, c.HostConfig.Resources)
	}
	if d := e.Engine().Describe(); !d.NetworkAllowed || d.Isolation != "container" {
		t.Errorf("got %+v", d)
	}
	if len(e.CodeBlockDelimiters()) != 1 {
		t.Errorf("got %+v", e.CodeBlockDelimiters())
	}
}

// TestContainerDies: what kills the container is a typed error, and the next call
// has a new one and says what was lost.
func TestContainerDies(t *testing.T) {
	e := open(t, Config{})
	mustRun(t, e, python("open('kept', 'w').write('x')"))
	ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	first := e.ContainerID("")
	killed := whenRuns(t, daemon.Host, first, "sleep 600", func(api *client.Client) error {
		_, err := api.ContainerKill(context.Background(), first, client.ContainerKillOptions{Signal: "KILL"})
		return err
	})
	r, err := e.ExecuteCode(t.Context(), bash("echo begun; sleep 600"))
	if !errors.Is(err, ErrContainerGone) || cubby.CodeOf(err) != cubby.CodeSandboxGone || !strings.Contains(err.Error(), "137") {
		t.Errorf("got %v", err)
	}
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	wantOutput(t, r, "begun\n")
	if r.Outcome != codeexec.OutcomeFailed {
		t.Errorf("got %+v", r)
	}
	r = mustRun(t, e, python("import os\nprint(os.path.exists('kept'))"))
	wantOutput(t, r, "False\n")
	if !r.StateLost {
		t.Error("it is not said that the files are gone")
	}
	if r = mustRun(t, e, python("1")); r.StateLost {
		t.Error("it is said again")
	}
	if e.ContainerID("") == first {
		t.Error("it is the same container")
	}
	_, err = e.Engine().Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true"})
	if !codeexec.IsWorkspaceRetrySafe(err) {
		t.Errorf("the workspace is gone: got %v", err)
	}
}
