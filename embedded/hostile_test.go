package embedded_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// TestHostileGuest attacks the promises of SECURITY.md from inside.
func TestHostileGuest(t *testing.T) {
	t.Run("secrets", testSecrets)
	t.Run("network", testNetwork)
	t.Run("fork_bomb", testForkBomb)
	t.Run("memory", testMemory)
	t.Run("disk", testDisk)
	t.Run("inodes", testInodes)
	t.Run("output", testOutput)
	t.Run("time", testTime)
	t.Run("kernel", testKernelDies)
	t.Run("devices", testDevices)
}

// testSecrets plants a canary in the places where a host keeps secrets and
// looks for it, and for the places.
func testSecrets(t *testing.T) {
	t.Setenv("CUBBY_CANARY", "canary-in-the-environment")
	canary := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(canary, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	sbx := create(t)
	home, _ := os.UserHomeDir()
	ex := run(t, sbx, `
import os, glob
for path in ["`+canary+`", "`+home+`/.ssh", "`+home+`/.bash_history", "`+home+`/.config", "/etc/ssh", "/etc/sudoers", "/etc/machine-id",
             "/var/lib/dpkg/status-old", "/var/log/syslog", "/var/run/docker.sock", "/run/docker.sock", "/root/.ssh",
             "/proc/1/root/etc/ssh"]:
    if os.path.exists(path): print("visible:", path)
try: print("shadow:", [l for l in open("/etc/shadow") if l.split(":")[1] not in ("", "*", "!", "x", "!!", "!*")])
except OSError: pass
for pid in os.listdir("/proc"):
    try: env = open(f"/proc/{pid}/environ").read()
    except OSError: continue
    if "canary" in env: print("environment of", pid)
if "canary" in str(os.environ): print("own environment")
for f in glob.glob("/proc/self/fd/*"):
    try: target = os.readlink(f)
    except OSError: continue
    if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/home/user", "/usr/")): print("descriptor", f, target)`)
	if got := strings.TrimSpace(strings.ReplaceAll(ex.Stdout, "shadow: []", "")); got != "" || ex.Error != nil {
		t.Errorf("%s %+v", ex.Stdout, ex.Error)
	}
}

func testNetwork(t *testing.T) {
	sbx := create(t)
	ex := run(t, sbx, `
import socket
for family, address in [(socket.AF_INET, ("169.254.169.254", 80)), (socket.AF_INET, ("1.1.1.1", 443)), (socket.AF_INET, ("10.0.0.1", 22)),
                        (socket.AF_INET6, ("fd00:ec2::254", 80)), (socket.AF_INET6, ("::ffff:127.0.0.1", 22))]:
    s = socket.socket(family); s.settimeout(1)
    try: s.connect(address); print("connected", address)
    except OSError: pass
try: print(socket.getaddrinfo("example.com", 80))
except OSError: pass`)
	if ex.Stdout != "" || ex.Error != nil {
		t.Errorf("%s %+v", ex.Stdout, ex.Error)
	}
}

// testForkBomb leaves a bomb going off in the background: it stays within its
// number, and the sandbox answers beside it.
func testForkBomb(t *testing.T) {
	sbx := create(t, cubby.WithLimits(cubby.Limits{PIDs: 64}))
	run(t, sbx, "bomb() { bomb | bomb & }; bomb; sleep 0.3; true", cubby.WithLanguage("bash"), cubby.WithTimeout(10*time.Second))
	ex := run(t, sbx, `
import os
print("alive", sum(p.isdigit() for p in os.listdir("/proc")) <= 64 + 8)`, cubby.WithTimeout(30*time.Second))
	if ex.Stdout != "alive True\n" {
		t.Errorf("%+v", ex)
	}
}

func testMemory(t *testing.T) {
	limits := cubby.WithLimits(cubby.Limits{Memory: 256 << 20})
	t.Run("one process", func(t *testing.T) {
		sbx := create(t, limits)
		ex := run(t, sbx, "b = bytearray(2 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('not stopped')")
		if !ex.OOMKilled || ex.ExitCode != 137 || ex.Limit != "memory" || ex.Stdout != "" {
			t.Errorf("%+v", ex)
		}
		if ex := run(t, sbx, "print('next')"); ex.Stdout != "next\n" || !ex.FreshKernel {
			t.Errorf("the next call: %+v", ex)
		}
	})
	t.Run("many processes", func(t *testing.T) {
		sbx := create(t, limits)
		run(t, sbx, "kept = 1")
		ex := run(t, sbx, `
for i in 1 2 3 4 5 6 7 8; do
  /usr/bin/python3 -c 'b = bytearray(80 << 20)
for i in range(0, len(b), 4096): b[i] = 1
import time; time.sleep(20)' &
done
wait`, cubby.WithLanguage("bash"))
		if !ex.OOMKilled || ex.ExitCode != 137 {
			t.Errorf("%+v", ex)
		}
		if ex := run(t, sbx, "print('alive')"); !strings.HasSuffix(ex.Stdout, "alive\n") {
			t.Errorf("the sandbox did not live on: %+v", ex)
		}
	})
	t.Run("memory files", func(t *testing.T) {
		sbx := create(t, limits)
		// It ends by nothing else: no file is as long as a file may be.
		ex, err := sbx.RunCode(t.Context(), `import os
files = []
while True:
    files.append(os.memfd_create('x'))
    for _ in range(256): os.write(files[-1], b'x' * (1 << 20))`)
		if err == nil && !ex.OOMKilled {
			t.Errorf("%+v", ex)
		}
	})
}

func testDisk(t *testing.T) {
	sbx := create(t, cubby.WithLimits(cubby.Limits{Disk: 32 << 20}))
	ex := run(t, sbx, "dd if=/dev/zero of=/home/user/a bs=1M count=20 2>&1 | tail -1; dd if=/dev/zero of=/tmp/b bs=1M count=20 2>&1 | grep -o 'No space left'; rm /tmp/b /home/user/a; echo ok > c; cat c", cubby.WithLanguage("bash"))
	if !strings.Contains(ex.Stdout, "No space left") || !strings.HasSuffix(ex.Stdout, "ok\n") {
		t.Errorf("%+v", ex)
	}
}

// testInodes fills the memory of the sandbox's kernel, which no quota on content
// bounds: the sandbox ends, and says why.
func testInodes(t *testing.T) {
	sbx := create(t)
	_, err := sbx.RunCode(t.Context(), "import os\nfor i in range(1000000): os.symlink('x' * 4000, '/home/user/%d' % i)", cubby.WithTimeout(2*time.Minute))
	if cubby.CodeOf(err) != cubby.CodeSandboxGone || !strings.Contains(err.Error(), "too many files") {
		t.Errorf("got %v", err)
	}
}

// testOutput prints a gigabyte: the answer is bounded and flagged, the code goes
// on, and the processes that carry it stay small.
func testOutput(t *testing.T) {
	sbx := create(t)
	ex := run(t, sbx, "yes 0123456789012345678901234567890123456789 | head -c 1073741824; echo done > finished", cubby.WithLanguage("bash"),
		cubby.WithMaxOutput(1<<20), cubby.WithTimeout(2*time.Minute))
	if len(ex.Stdout) > 1<<20 || !ex.Truncated || ex.Limit != "output" || ex.ExitCode != 0 {
		t.Errorf("%d bytes, truncated %v, limit %q, exit %d, %+v", len(ex.Stdout), ex.Truncated, ex.Limit, ex.ExitCode, ex.Error)
	}
	for _, pid := range pids(t, os.Getpid()) {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
				if kb, _ := strconv.Atoi(f[1]); kb > 128<<10 {
					t.Errorf("the child's memory peaked at %d MiB", kb>>10)
				}
			}
		}
	}
	if ex := run(t, sbx, "cat finished", cubby.WithLanguage("bash")); ex.Stdout != "done\n" {
		t.Errorf("the code did not go on: %+v", ex)
	}
}

// testTime runs past its time in every way that avoids being stopped.
func testTime(t *testing.T) {
	sbx := create(t)
	second := cubby.WithTimeout(time.Second)
	longer := cubby.WithTimeout(4 * time.Second) // to get as far as ignoring signals, however busy the machine
	ex := run(t, sbx, "while True: pass", second)
	if !ex.TimedOut || ex.ExitCode != 124 || ex.Limit != "time" {
		t.Errorf("a loop: %+v", ex)
	}
	run(t, sbx, "import subprocess; early = subprocess.Popen(['sleep', '1000'])")
	ex = run(t, sbx, `
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        while True: time.sleep(0.1); open('/home/user/ticking', 'a').write('.')
    os._exit(0)
while True: time.sleep(1)`, longer)
	if !ex.TimedOut || ex.ExitCode != 124 || !ex.StateLost {
		t.Errorf("one that ignores signals: %+v", ex)
	}
	ex = run(t, sbx, "import os, time\na = os.path.getsize('/home/user/ticking'); time.sleep(0.5); print(a == os.path.getsize('/home/user/ticking'))")
	if !strings.HasSuffix(ex.Stdout, "True\n") {
		t.Errorf("what it had started goes on: %q %+v", ex.Stdout, ex.Error)
	}
	if ex := run(t, sbx, "pgrep -x sleep >/dev/null && echo lives || ls /proc | grep -c '^[0-9]'", cubby.WithLanguage("bash")); ex.Stdout != "lives\n" {
		t.Errorf("an earlier background job was killed: %q", ex.Stdout)
	}
}

func testKernelDies(t *testing.T) {
	sbx := create(t)
	for _, test := range []struct {
		code string
		exit int
	}{
		{"import os; os._exit(3)", 3},
		{"import os; os.kill(os.getpid(), 9)", 137},
		{"import ctypes; ctypes.string_at(0)", 139},
	} {
		run(t, sbx, "x = 1")
		if ex := run(t, sbx, test.code); ex.ExitCode != test.exit || !ex.StateLost || ex.Error == nil {
			t.Errorf("%s: %+v", test.code, ex)
		}
		if ex := run(t, sbx, "print('x' in globals())"); ex.Stdout != "False\n" || !ex.FreshKernel || ex.Stderr == "" {
			t.Errorf("after %s: %+v", test.code, ex)
		}
	}
}

func testDevices(t *testing.T) {
	sbx := create(t)
	ex := run(t, sbx, `
import os
for path in ["/dev/mem", "/dev/kvm", "/dev/vda", "/dev/sda", "/proc/kcore", "/proc/sysrq-trigger"]:
    try: os.close(os.open(path, os.O_RDWR)); print("opened", path)
    except OSError: pass
try: os.mknod("/home/user/disk", 0o60660, os.makedev(8, 0)); print("made a device")
except OSError: pass
try: open("/proc/self/exe", "wb"); print("wrote the interpreter")
except OSError: pass`)
	if ex.Stdout != "" || ex.Error != nil {
		t.Errorf("%s %+v", ex.Stdout, ex.Error)
	}
}
