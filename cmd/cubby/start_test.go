//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// shell runs a script in which $CUBBY is the program and $DIR a folder of its
// own, and returns what it printed.
func shell(t *testing.T, attr *syscall.SysProcAttr, script string, env ...string) (string, error) {
	t.Helper()
	cubby := testenv.Cubby(t) // which may have to be built
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "exec 2>&1\n"+script)
	cmd.Env = append(os.Environ(), "CUBBY="+cubby, "DIR="+os.TempDir(), "CUBBY_PYTHON="+python)
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = attr
	out, err := cmd.Output()
	return string(out), err
}

// TestTightLimits: a limit that is too small is named, with what to do about it,
// by every command that starts sandboxes.
func TestTightLimits(t *testing.T) {
	testenv.CheckLeaks(t)
	for _, test := range []struct{ limit, name, flag string }{
		{"ulimit -n 128", "RLIMIT_NOFILE", "ulimit -n"},
		{"ulimit -u 12", "RLIMIT_NPROC", "ulimit -u"},
		{"ulimit -v 3000000", "RLIMIT_AS", "ulimit -v"},
		{"ulimit -i 0", "RLIMIT_SIGPENDING", "ulimit -i"},
		{"ulimit -f 100000", "RLIMIT_FSIZE", "ulimit -f"},
	} {
		for _, command := range []string{
			"run -e 'print(1)'", "doctor",
			"serve --listen 127.0.0.1:0 --data-dir $DIR/data", // and not when the first sandbox is asked for
		} {
			t.Run(test.name+"/"+strings.Fields(command)[0], func(t *testing.T) {
				if test.name == "RLIMIT_NPROC" && os.Getuid() != 0 {
					t.Skip("what other tests of this user have running counts, too")
				}
				out, err := shell(t, nil, test.limit+"; exec $CUBBY "+command)
				if err == nil || !strings.Contains(out, test.name) || !strings.Contains(out, test.flag) {
					t.Errorf("got %v: %s", err, out)
				}
				if strings.Contains(out, "goroutine") {
					t.Errorf("a trace: %s", out)
				}
			})
		}
	}
	// Soft limits are raised, and need no word.
	if out, err := shell(t, nil, "ulimit -Sn 100; exec $CUBBY run -e 'print(6*7)'"); err != nil || out != "42\n" {
		t.Errorf("a soft limit: %v: %s", err, out)
	}
	// The fewest that are accepted are enough for code that looks at many files.
	out, err := shell(t, nil, `ulimit -n 512; exec $CUBBY run -e '
import os
seen = 0
for folder, _, files in os.walk("/usr/lib", onerror=print):
    for name in files:
        try:
            with open(os.path.join(folder, name), "rb") as f:
                seen += len(f.read(1))
        except (FileNotFoundError, PermissionError):
            pass
    if seen > 1000:
        break
print(seen > 1000)'`)
	if err != nil || out != "True\n" {
		t.Errorf("a thousand files with 512 descriptors: %v: %s", err, out)
	}
	// A server has descriptors for as many sandboxes as it promises.
	out, err = shell(t, nil, "ulimit -n 1000; exec $CUBBY serve --listen 127.0.0.1:0 --data-dir $DIR/data --max-sandboxes 500")
	if err == nil || !strings.Contains(out, "500 sandboxes need 8128") || !strings.Contains(out, "ulimit -n 8128") ||
		!strings.Contains(out, "--max-sandboxes") {
		t.Errorf("500 sandboxes with 1000 descriptors: %v: %s", err, out)
	}
}

// TestAnyPlace starts sandboxes from and in places that their users, who are not
// this one, cannot reach.
func TestAnyPlace(t *testing.T) {
	testenv.CheckLeaks(t)
	for _, test := range []struct{ name, prepare, run string }{
		{"binary in a closed folder", "mkdir -m 700 $DIR/a; cp $CUBBY $DIR/a/cubby", "$DIR/a/cubby"},
		{"binary for its owner only", "mkdir $DIR/b; cp $CUBBY $DIR/b/cubby; chmod 700 $DIR/b/cubby", "$DIR/b/cubby"},
		{"current folder that cannot be opened", "mkdir $DIR/cwd", "cd $DIR/cwd; chmod 0 .; $CUBBY"}, // by others than root
		{"closed home", "mkdir -m 700 $DIR/c", "HOME=$DIR/c $CUBBY"},
		{"closed folder for temporary files", "mkdir -m 700 $DIR/d", "TMPDIR=$DIR/d $CUBBY"},
		{"a folder of one's own in an open one", "mkdir -m 711 $DIR/e; mkdir -m 700 $DIR/e/0", "TMPDIR=$DIR/e/0 $CUBBY"},
		{"no folder for temporary files", "true", "TMPDIR=$DIR/none $CUBBY"},
		{"a file for temporary files", "echo >$DIR/file", "TMPDIR=$DIR/file $CUBBY"},
		{"a folder for temporary files that cannot be written", "mkdir -m 555 $DIR/h", "TMPDIR=$DIR/h $CUBBY"}, // by others than root
		{"a relative folder for temporary files", "mkdir $DIR/i", "cd $DIR; TMPDIR=i $CUBBY"},
		{"umask 077", "umask 077", "$CUBBY"},
		{"umask 777", "umask 777", "$CUBBY"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := shell(t, nil, test.prepare+" && "+test.run+" run -e 'print(6*7)'")
			if err != nil || out != "42\n" {
				t.Errorf("got %v: %s", err, out)
			}
		})
	}
	t.Run("a user without a cache", func(t *testing.T) {
		user := ""
		if os.Geteuid() == 0 { // whose cache is always there
			user = "setpriv --reuid 65534 --regid 65534 --clear-groups"
		}
		// Without the engine beside it everything has to be unpacked.
		out, err := shell(t, nil, "mkdir -m 755 $DIR/f && cp $CUBBY $DIR/f/cubby && chmod 755 $DIR/f/cubby && mkdir -m 1777 $DIR/g && "+
			"exec env -u XDG_CACHE_HOME HOME=/nonexistent TMPDIR=$DIR/g "+user+" $DIR/f/cubby run -e 'print(6*7)'")
		if err != nil || out != "42\n" {
			t.Errorf("got %v: %s", err, out)
		}
	})
	t.Run("nothing can be executed in the folder for temporary files", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("mounts a file system")
		}
		out, err := shell(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, `
			mount --make-rprivate / && mkdir -m 755 $DIR/n && mount -t tmpfs -o noexec none $DIR/n &&
			HOME=$DIR/n TMPDIR=$DIR/n $CUBBY run -e 'print(6*7)'`)
		if err != nil || out != "42\n" {
			t.Errorf("got %v: %s", err, out)
		}
	})
	t.Run("nothing can be written in the folder for temporary files", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("mounts a file system")
		}
		for name, mount := range map[string]string{
			"read-only": "mount -t tmpfs -o ro,mode=1777 none $DIR/w",
			"full":      "mount -t tmpfs -o size=64k,mode=1777 none $DIR/w; head -c 64k /dev/zero >$DIR/w/full",
			"no inodes": "mount -t tmpfs -o nr_inodes=1,mode=1777 none $DIR/w",
		} {
			out, err := shell(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS},
				"mount --make-rprivate / && mkdir -p $DIR/w && "+mount+"; TMPDIR=$DIR/w $CUBBY run -e 'print(6*7)'")
			if err != nil || out != "42\n" {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	})
}

// machines lists the processes of sandboxes whose files are in dir: "gofer"s,
// which come first, "sandbox"es, or both if kind is empty.
func machines(kind, dir string) []int {
	var pids []int
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		cmdline, _ := os.ReadFile(file)
		if bytes.HasPrefix(cmdline, []byte("runsc-"+kind)) && bytes.Contains(cmdline, []byte(dir)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// stopWhenThere stops a machine's process as soon as it is there, or a moment
// later, and returns it.
func stopWhenThere(t *testing.T, kind string, later time.Duration) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		if found := machines(kind, os.TempDir()); len(found) > 0 {
			time.Sleep(later)
			if err := syscall.Kill(found[0], syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			return found[0]
		}
	}
	t.Fatal("no process of a sandbox appeared")
	return 0
}

// TestStoppedStart stops a sandbox's processes at different moments of its start
// and kills `cubby run`: nothing runs on.
func TestStoppedStart(t *testing.T) {
	for _, kind := range []string{"gofer", "sandbox"} {
		for _, later := range []time.Duration{0, 10 * time.Millisecond, 60 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s after %v", kind, later), func(t *testing.T) {
				testenv.CheckLeaks(t)
				cmd := exec.Command(testenv.Cubby(t), "run", "--python", python, "-e", "import time; time.sleep(60)")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				stopped := stopWhenThere(t, kind, later)
				began := time.Now()
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				for syscall.Kill(stopped, 0) == nil || len(machines("", os.TempDir())) > 0 {
					if time.Since(began) > 15*time.Second {
						t.Fatal("the sandbox lives on without its program")
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
	}
}

// TestStartTakesTooLong stops a sandbox's kernel while it starts: the code's own
// time, or a little more, bounds the start.
func TestStartTakesTooLong(t *testing.T) {
	testenv.CheckLeaks(t)
	t.Setenv("CUBBY_BINARY", testenv.Cubby(t))
	t.Setenv("CUBBY_PYTHON", python)
	var stderr bytes.Buffer
	std := stdio{strings.NewReader(""), io.Discard, &stderr}
	r, err := newRunner(std, openEmbedded(newEngineProgram()), source{code: "print(1)", language: "python"},
		runFlags{
			timeout: timeValue(time.Second), limitFlags: limitFlags{memory: 512 << 20, disk: 1 << 30, cpus: 1, pids: 256},
			maxOutput: 1 << 20, outMaxBytes: 1 << 20, outMaxFiles: 1, engine: enginename.Default,
		}, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if got := r.startTime(); got != leastStart {
		t.Errorf("the start gets %v", got)
	}
	r.leastStart = 2 * time.Second
	done := make(chan error, 1)
	go func() { done <- r.run(t.Context()) }()
	stopWhenThere(t, "sandbox", 0)
	began := time.Now()
	err = <-done
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if report(&stderr, err) != exitCannotRun || !strings.Contains(stderr.String(), "no sandbox was ready within 2s") {
		t.Errorf("got %v: %s", err, stderr.String())
	}
}

// TestProcessesThatEnd: whoever's code is cut short is told what ended, not what
// was seen of that on a connection.
func TestProcessesThatEnd(t *testing.T) {
	for _, test := range []struct {
		victim string
		want   []string
	}{
		{"server", []string{"the server of the sandboxes was killed by signal 9 (SIGKILL)", "hint:"}},
		{"sandbox", []string{"the sandbox has ended", "the sandbox's kernel was killed by SIGKILL", "hint:"}},
		{"gofer", []string{"the sandbox has ended", "the sandbox's file server was killed by SIGKILL", "hint:"}},
	} {
		t.Run(test.victim, func(t *testing.T) {
			testenv.CheckLeaks(t)
			cmd := exec.Command(testenv.Cubby(t), "run", "--python", python, "-e", "import time; print('up', flush=True); time.sleep(60)")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			victims := machines(test.victim, os.TempDir())
			if test.victim == "server" {
				victims = childrenOf(cmd.Process.Pid)
			}
			for _, pid := range victims {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			err = cmd.Wait()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitCannotRun {
				t.Errorf("got %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("%q is not in %s", want, stderr.String())
				}
			}
			if strings.Contains(stderr.String(), "EOF") {
				t.Errorf("got %s", stderr.String())
			}
			if test.victim == "server" {
				// Nobody was left to clean up but the next start, which leaves alone
				// what may just be being made.
				dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "cubby-run-*"))
				for _, dir := range dirs {
					hour := time.Now().Add(-time.Hour)
					_ = os.Chtimes(dir, hour, hour)
				}
				if out, err := shell(t, nil, "$CUBBY run -e 'print(6*7)'"); err != nil || out != "42\n" {
					t.Errorf("the next start: %v: %s", err, out)
				}
			}
		})
	}
}

// TestObjectOfACutRun: a program that reads --json gets its object, whatever ends.
func TestObjectOfACutRun(t *testing.T) {
	for _, victim := range []string{"server", "sandbox", "gofer"} {
		t.Run(victim, func(t *testing.T) {
			testenv.CheckLeaks(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, testenv.Cubby(t), "run", "--json", "--python", python, "-e", "import time; time.sleep(600)")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for killed := false; !killed && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				victims := machines(victim, os.TempDir())
				if victim == "server" { // and not a child with which Go tries what its kernel can
					victims = slices.DeleteFunc(childrenOf(cmd.Process.Pid), func(pid int) bool {
						cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
						return !bytes.Contains(cmdline, []byte("--"+handshake.FlagPrivate))
					})
				}
				for _, pid := range victims {
					killed = syscall.Kill(pid, syscall.SIGKILL) == nil
				}
			}
			err := cmd.Wait()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitCannotRun {
				t.Errorf("got %v", err)
			}
			var object jsonOutcome
			if err := json.Unmarshal(stdout.Bytes(), &object); err != nil {
				t.Fatalf("%v: %q; %s", err, stdout.String(), stderr.String())
			}
			if f := object.Failure; f == nil || f.Message == "" || !strings.Contains(stderr.String(), f.Message) || object.ExitCode != exitCannotRun {
				t.Errorf("got %+v, failure %+v; %s", object, f, stderr.String())
			}
		})
	}
}

func childrenOf(parent int) []int {
	var pids []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}
