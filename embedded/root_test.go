package embedded_test

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

var bash = cubby.WithLanguage("bash")

// TestSudo uses sudo and su as code does.
func TestSudo(t *testing.T) {
	sbx := create(t)
	for _, c := range []struct {
		name, code, stdout, stderr string
		status                     int
	}{
		{"root", "sudo id -u", "0\n", "", 0},
		{"by its path", "/usr/bin/sudo id -un", "root\n", "", 0},
		{"user and groups", "sudo -u user id -un; sudo -u user id -Gn", "user\nuser sudo\n", "", 0},
		{"status", "sudo sh -c 'exit 7'", "", "", 7},
		{"signal", "sudo sh -c 'kill -TERM $$'", "", "Terminated", 143},
		{"standard input", "echo in | sudo cat", "in\n", "", 0},
		{"environment", "SECRET=1 sudo sh -c 'echo $USER $HOME $SUDO_USER $SECRET'; SECRET=1 sudo -E sh -c 'echo $SECRET'; sudo A=b sh -c 'echo $A'",
			"root /root user\n1\nb\n", "", 0},
		{"login", "sudo -i pwd; sudo -i -u user pwd; sudo -s id -u", "/root\n/home/user\n0\n", "", 0},
		{"validate and list", "sudo -v && sudo -n true && sudo -l id", "/usr/bin/id\n", "", 0},
		{"nested", "sudo sudo -u user sudo id -u", "0\n", "", 0},
		{"su", "sudo su -c 'id -u'; sudo su - user -c 'id -un; pwd'", "0\nuser\n/home/user\n", "", 0},
		{"su without root", "su -c id", "", "use sudo", 1},
		{"unknown command", "sudo no-such-command", "", "sudo: no-such-command: command not found", 1},
		{"unknown option", "sudo -Z true", "", "invalid option -- 'Z'", 1},
		{"unknown user", "sudo -u stranger true", "", "unknown user stranger", 1},
		{"writes", `sudo sh -c 'echo "#!/bin/sh
echo installed" > /usr/local/bin/tool; chmod +x /usr/local/bin/tool; mkdir -p /etc/tool.d /opt/tool /var/lib/tool; echo x > /etc/tool.d/conf
mv /etc/hostname /etc/hostname.old; rm /etc/shells; chown user /opt/tool; ln -sf /usr/local/bin/tool /usr/bin/tool2'; tool; tool2; cat /etc/tool.d/conf; touch /opt/tool/mine && echo mine`,
			"installed\ninstalled\nx\nmine\n", "", 0},
		{"without root", "echo 'echo mine' > /usr/local/bin/own && chmod +x /usr/local/bin/own && own; echo x > /code/x && cat /code/x", "mine\nx\n", "", 0},
		{"host's files", "sudo sh -c 'echo changed > /usr/bin/env; chmod 600 /usr/bin/env'; cat /usr/bin/env; sudo cat /usr/bin/env", "changed\n", "Permission denied", 0},
		{"terminal", `/usr/bin/python3 -c 'import pty, os
pid, fd = pty.fork()
if pid == 0: os.execvp("sudo", ["sudo", "sh", "-c", "test -t 0 && tty && id -u; read line; echo got $line"])
os.write(fd, b"typed\n")
out = b""
try:
    while True: out += os.read(fd, 4096)
except OSError: pass
print(b"/dev/pts/" in out and b"got typed" in out, os.waitpid(pid, 0)[1])'`, "True 0\n", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ex := run(t, sbx, c.code, bash, cubby.WithTimeout(time.Minute))
			if ex.Stdout != c.stdout || !strings.Contains(ex.Stderr, c.stderr) || c.stderr == "" && ex.Stderr != "" || ex.ExitCode != c.status {
				t.Errorf("%q, %q, exit status %d", ex.Stdout, ex.Stderr, ex.ExitCode)
			}
		})
	}
	if b, err := os.ReadFile("/usr/bin/env"); err != nil || len(b) < 1000 {
		t.Errorf("the host's /usr/bin/env: %d bytes, %v", len(b), err)
	}
}

// TestSudoIsInterrupted runs past a cell's time as root, whom the kernel may not
// signal: the command ends, the kernel's state stays.
func TestSudoIsInterrupted(t *testing.T) {
	sbx := create(t)
	for _, c := range []struct{ language, setup, code, later string }{
		{"bash", "x=1", "sudo sleep 1000", "echo $x; pgrep -x sleep"},
		{"python", "import subprocess; x = 1", "subprocess.run(['sudo', 'sleep', '1000'])", "print(x); subprocess.run(['pgrep', '-x', 'sleep'])"},
	} {
		language := cubby.WithLanguage(c.language)
		run(t, sbx, c.setup, language)
		ex := run(t, sbx, c.code, language, cubby.WithTimeout(time.Second))
		if !ex.TimedOut || ex.StateLost {
			t.Errorf("%s: %+v", c.language, ex)
		}
		if ex := run(t, sbx, c.later, language); ex.Stdout != "1\n" {
			t.Errorf("%s: %q %q", c.language, ex.Stdout, ex.Stderr)
		}
	}
}

// TestHostileRoot attacks, as the root that sudo makes, what must hold against it
// too.
func TestHostileRoot(t *testing.T) {
	t.Run("fork_bomb", testRootForkBomb)
	t.Run("many_users", testManyUsers)
	t.Run("memory", testRootMemory)
	t.Run("disk", testRootDisk)
	t.Run("token", testToken)
	t.Run("kernel", testRootKernel)
	t.Run("first_process", testFirstProcess)
	t.Run("user_namespace", testUserNamespace)
}

// testUserNamespace attacks from a user namespace that code made for itself, in
// which it has every capability, CAP_SYS_ADMIN and CAP_SYS_PTRACE too. They hold
// over what is made there, and over nothing of process 1's.
func testUserNamespace(t *testing.T) {
	sbx := create(t, cubby.WithLimits(cubby.Limits{PIDs: 64}))
	const attacks = `
grep -q '^CapEff:.*fff' /proc/self/status && echo all capabilities
cat /proc/1/environ /proc/1/mem /proc/1/maps && echo read process 1
ls -l /proc/1/fd | grep -q '[-]>' && echo saw descriptors of process 1
nsenter -t 1 -m true && echo entered namespaces of process 1
prlimit --nproc=100000:100000 true && echo lifted its own limit
umount /proc && echo unmounted /proc
umount -l /dev/shm && echo unmounted /dev/shm
mount -o remount,rw /sys && echo made /sys writable
hostname elsewhere && echo renamed the sandbox
date -s 2001-01-01 >/dev/null && echo set the clock
mount -t proc none /mnt && cat /mnt/1/environ && echo read process 1 in another proc
true`
	for _, who := range []string{"", "sudo "} {
		t.Run(strings.TrimSpace("user "+who), func(t *testing.T) {
			ex := run(t, sbx, who+"unshare --user --map-root-user --mount bash 2>/dev/null <<'EOF'"+attacks+"\nEOF", bash, cubby.WithTimeout(time.Minute))
			if ex.Stdout != "all capabilities\n" {
				t.Errorf("%q %q", ex.Stdout, ex.Stderr)
			}
		})
	}
	// Root may signal process 1 without any namespace: see first_process.
	if ex := run(t, sbx, "unshare --user --map-root-user kill -STOP 1 2>/dev/null || echo refused", bash); ex.Stdout != "refused\n" {
		t.Errorf("the user stopped process 1: %q", ex.Stdout)
	}
	// Nor does the number of processes grow with the namespaces.
	ex := run(t, sbx, `unshare --user --map-root-user /usr/bin/python3 -c '
import os, signal
kids = []
try:
    while len(kids) < 100:
        kids.append(os.fork())
        if kids[-1] == 0: signal.pause()
except OSError: pass
for pid in kids: os.kill(pid, 9)
print(len(kids) < 64)'`, bash, cubby.WithTimeout(time.Minute))
	if ex.Stdout != "True\n" {
		t.Errorf("more processes than the limit: %q %q", ex.Stdout, ex.Stderr)
	}
	// A control group can be left there by root only, who then outlives its cell.
	ex = run(t, sbx, `unshare --user --map-root-user --mount bash -c 'mount -t cgroup -o pids none /mnt && echo $$ > /mnt/cgroup.procs' 2>/dev/null && echo left; true`, bash)
	if ex.Stdout != "" {
		t.Errorf("the user left its cell: %q", ex.Stdout)
	}
}

// testRootForkBomb lets a bomb go off as root: it stays within its number and can
// lift none of its bounds, and the sandbox answers beside it, root and user.
func testRootForkBomb(t *testing.T) {
	const number = 64
	sbx := create(t, cubby.WithLimits(cubby.Limits{PIDs: number}))
	ex := run(t, sbx, `sudo bash -c 'ulimit -u unlimited'; sudo bash -c 'ulimit -u 100000'
sudo prlimit --pid 1 --nproc=100000:100000; sudo mount -t cgroup -o pids none /mnt; sudo unshare -m true; echo survived`, bash, cubby.WithTimeout(30*time.Second))
	if ex.Stdout != "survived\n" || strings.Count(ex.Stderr, "not permitted")+strings.Count(ex.Stderr, "superuser") < 4 {
		t.Errorf("lifting the bound: %q %q", ex.Stdout, ex.Stderr)
	}
	run(t, sbx, "sudo bash -c 'bomb() { bomb | bomb & }; bomb; sleep 0.3'; true", bash, cubby.WithTimeout(10*time.Second))
	// Of root's number some are the guest's own threads; the user has its own.
	ex = run(t, sbx, `
import os, time
most = 0
for _ in range(20):
    most = max(most, sum(p.isdigit() for p in os.listdir("/proc")))
    time.sleep(.02)
print("alive", most <= `+"64 + 16"+`)`, cubby.WithTimeout(time.Minute))
	if ex.Stdout != "alive True\n" {
		t.Errorf("%+v", ex)
	}
}

// testManyUsers lets root spread a bomb over users: each has a number of its own,
// and behind them stands the host's bound, which ends the sandbox. Others live.
func testManyUsers(t *testing.T) {
	c := open(t)
	sbx, err := c.Create(t.Context(), cubby.WithLimits(cubby.Limits{PIDs: 64}))
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const code = `sudo /usr/bin/python3 -c '
import os, time
made = 0
for uid in range(2000, 2200):
    if os.fork() == 0:
        os.setuid(uid)
        try:
            for _ in range(60):
                if os.fork() == 0: time.sleep(1000)
        except OSError: pass
        time.sleep(1000)
time.sleep(20)'`
	// It ends in one way or the other, and soon.
	_, err = sbx.RunCode(t.Context(), code, bash, cubby.WithTimeout(30*time.Second))
	t.Logf("the sandbox: %v", err)
	if ex := run(t, other, "print('lives')"); ex.Stdout != "lives\n" {
		t.Errorf("the other sandbox: %+v", ex)
	}
	_ = sbx.Kill(t.Context())
}

func testRootMemory(t *testing.T) {
	sbx := create(t, cubby.WithLimits(cubby.Limits{Memory: 256 << 20}))
	ex := run(t, sbx, `sudo /usr/bin/python3 -c '
b = bytearray(2 << 30)
for i in range(0, len(b), 4096): b[i] = 1
print("not stopped")'`, bash)
	if !ex.OOMKilled || strings.Contains(ex.Stdout, "not") {
		t.Errorf("%+v", ex)
	}
	if ex := run(t, sbx, "print('alive')"); ex.Stdout != "alive\n" {
		t.Errorf("the sandbox did not live on: %+v", ex)
	}
}

func testRootDisk(t *testing.T) {
	sbx := create(t, cubby.WithLimits(cubby.Limits{Disk: 32 << 20}))
	ex := run(t, sbx, "sudo dd if=/dev/zero of=/usr/big bs=1M count=64 2>&1 | grep -o 'No space left'; sudo rm /usr/big; echo ok > c; cat c", bash)
	if !strings.Contains(ex.Stdout, "No space left") || !strings.HasSuffix(ex.Stdout, "ok\n") {
		t.Errorf("%+v", ex)
	}
}

// testToken looks for the guest's token, and for its channel, in every way that
// root has.
func testToken(t *testing.T) {
	sbx := create(t)
	ex := run(t, sbx, `sudo /usr/bin/python3 -c '
import ctypes, os, glob
def attempt(what, f):
    try: r = f()
    except OSError: return
    if r not in (-1, None): print(what, r)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
attempt("ptrace attach", lambda: libc.ptrace(16, 1, 0, 0))
attempt("ptrace seize", lambda: libc.ptrace(0x4206, 1, 0, 0))
for name in ("mem", "environ", "auxv"):
    attempt(name, lambda: len(open("/proc/1/" + name, "rb").read(1)))
for name in ("exe", "root", "cwd"):
    attempt(name, lambda: os.readlink("/proc/1/" + name))
for fd in range(64):
    attempt("descriptor %d" % fd, lambda: os.readlink("/proc/1/fd/%d" % fd))
    attempt("open %d" % fd, lambda: os.open("/proc/1/fd/%d" % fd, os.O_RDONLY))
    attempt("into %d" % fd, lambda: os.listdir("/proc/1/fd/%d/" % fd))
pidfd = libc.syscall(434, 1, 0)
for fd in range(64):
    attempt("pidfd_getfd", lambda: libc.syscall(438, pidfd, fd, 0))
class iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
buf = ctypes.create_string_buffer(4096)
mine = iovec(ctypes.addressof(buf), 4096)
try: starts = [int(line.split("-")[0], 16) for line in open("/proc/1/maps")]
except OSError: starts = []
for start in starts + [0x400000, 0xc000000000]:
    there = iovec(start, 4096)
    attempt("process_vm_readv", lambda: libc.syscall(310, 1, ctypes.byref(mine), 1, ctypes.byref(there), 1, 0))
for path in ("/dev/mem", "/dev/kmem", "/proc/kcore"):
    attempt(path, lambda: os.open(path, os.O_RDONLY))
attempt("setns", lambda: libc.syscall(308, pidfd, 0x00020000) or None)
libc.prctl(0x59616d61, -1, 0, 0, 0)
print("done", sorted(glob.glob("/core*") + glob.glob("/home/user/core*")))
'; sudo sh -c 'ulimit -c unlimited' 2>/dev/null; echo answered`, bash, cubby.WithTimeout(time.Minute))
	if ex.Stdout != "done []\nanswered\n" {
		t.Errorf("%s\n%s %+v", ex.Stdout, ex.Stderr, ex.Error)
	}
}

// testRootKernel turns root's capabilities against the sandbox's kernel.
func testRootKernel(t *testing.T) {
	sbx := create(t)
	ex := run(t, sbx, `
sudo grep -h CapBnd /proc/self/status /proc/1/status
sudo sh -c 'mount -t tmpfs x /mnt; mount --bind / /mnt; umount /proc; umount -l /; pivot_root . .' >/dev/null 2>&1 && echo mounted
sudo sh -c 'mknod /home/user/disk b 8 0 && head -c 1 /home/user/disk' 2>/dev/null | grep -q . && echo device
sudo sh -c 'cp /bin/bash /usr/local/bin/rb && chmod 4755 /usr/local/bin/rb'; rb -pc 'grep -h CapEff /proc/self/status'
ls /sys/fs/cgroup; true`, bash, cubby.WithTimeout(30*time.Second))
	lines := strings.Fields(ex.Stdout)
	if len(lines) != 6 || ex.Error != nil {
		t.Fatalf("%q %q", ex.Stdout, ex.Stderr)
	}
	for _, set := range []string{lines[1], lines[3], lines[5]} {
		b, err := hex.DecodeString(set)
		if err != nil || len(b) != 8 {
			t.Fatalf("%q: %v", set, err)
		}
		bits := uint64(0)
		for _, x := range b {
			bits = bits<<8 | uint64(x)
		}
		for name, bit := range map[string]int{"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYS_RESOURCE": 24, "CAP_SYS_MODULE": 16, "CAP_NET_ADMIN": 12, "CAP_SYS_RAWIO": 17} {
			if bits&(1<<bit) != 0 {
				t.Errorf("%s in %s", name, set)
			}
		}
	}
}

// testFirstProcess kills and stops the guest: that is the end of this sandbox, or
// of nothing, and no affair of the host or of other sandboxes.
func testFirstProcess(t *testing.T) {
	c := open(t)
	other, err := c.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []string{"TERM", "ABRT", "STOP", "KILL"} {
		sbx, err := c.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ex, err := sbx.RunCode(t.Context(), "sudo kill -"+signal+" 1; sleep 1; echo lives", bash, cubby.WithTimeout(5*time.Second))
		if err == nil && ex.Stdout != "lives\n" || time.Since(begin) > time.Minute {
			t.Errorf("%s: %+v %v after %v", signal, ex, err, time.Since(begin))
		}
		if err := sbx.Kill(t.Context()); err != nil && cubby.CodeOf(err) != cubby.CodeSandboxGone && cubby.CodeOf(err) != cubby.CodeNotFound {
			t.Errorf("%s: kill: %v", signal, err)
		}
		if ex := run(t, other, "print('lives')"); ex.Stdout != "lives\n" {
			t.Errorf("%s: the other sandbox: %+v", signal, ex)
		}
	}
}
