//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// exitCode is the status that a script of shell ended with.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return exitOK
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

// TestClosedStreams: what is printed to a stream that the caller has closed is
// lost, and told as a full disk is. What the caller throws away is not lost, however
// it does so: Go opens /dev/null for closed streams just like this.
func TestClosedStreams(t *testing.T) {
	testenv.CheckLeaks(t)
	const told = "cubby: standard output: bad file descriptor: the rest of it is lost\n"
	for _, test := range []struct {
		command string
		status  int
		out     string // standard error of the program, and its output where that is open
	}{
		{"version >&-", exitLost, told},
		{"--help >&-", exitLost, told},
		{"keys list --json --data-dir $DIR/keys >&-", exitLost, told},
		{"run -e 'print(1)' >&-", exitLost, told},
		{"run -e 'print(1)' >&- <&-", exitLost, told},
		{"run --json -e 'print(1)' >&-", exitLost, told},
		{"run -e 'print(1)' >&- 2>&-", exitLost, ""},
		{"run -e 'print(1)' <&- >&- 2>&-", exitLost, ""},
		{"run -e 'print(1); exit(3)' >&-", 3, told},
		{"run -e 'import sys; print(1, file=sys.stderr)' 2>&-", exitLost, ""},

		{"run -e 'pass' <&- >&- 2>&-", exitOK, ""}, // nothing was printed
		{"run -e 'print(1)' <&- 2>&-", exitOK, "1\n"},
		{"run -e 'print(1)' >/dev/null", exitOK, ""},
		{"run -e 'print(1)' 1<>/dev/null", exitOK, ""},
		{"run -e 'import sys; print(1, file=sys.stderr)' 2<>/dev/null", exitOK, ""},
		{"version 1<>/dev/null", exitOK, ""},
	} {
		t.Run(test.command, func(t *testing.T) {
			out, err := shell(t, nil, "$CUBBY "+test.command)
			if got := exitCode(t, err); got != test.status || out != test.out {
				t.Errorf("status %d, want %d; printed %q, want %q", got, test.status, out, test.out)
			}
		})
	}
}

// TestLimitsOfTheRuntime: limits that are too small for Go itself are named, in the
// words in which those are that are too small for a sandbox.
func TestLimitsOfTheRuntime(t *testing.T) {
	testenv.CheckLeaks(t)
	user := "bash -c"
	if os.Getuid() == 0 {
		// RLIMIT_NPROC does not bind root. The program may lie where others cannot go.
		user = "exec 3<$CUBBY; export CUBBY=/proc/self/fd/3; exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -c"
	}
	for _, test := range []struct {
		flag, name string
		toGo       []int // too small for Go, and for whatever the program initialises first
		toSandbox  int   // too small for a sandbox only; 0: not tested
	}{
		{"-v", "RLIMIT_AS", []int{150_000, 300_000, 600_000, 700_000, 750_000, 800_000, 1<<20 - 1}, 1 << 20},
		{"-d", "RLIMIT_DATA", []int{60_000, 75_000, 128<<10 - 1}, 128 << 10},
		{"-n", "RLIMIT_NOFILE", []int{3, 4, 6, 8, 31}, 32},
		{"-u", "RLIMIT_NPROC", []int{1, 5, 15}, 0}, // what other tests of this user have running counts, too
	} {
		t.Run(test.name, func(t *testing.T) {
			var hint string
			if test.toSandbox != 0 {
				out, err := shell(t, nil, fmt.Sprintf("ulimit %s %d; exec $CUBBY run -e 'print(1)'", test.flag, test.toSandbox))
				if got := exitCode(t, err); got != exitCannotRun || !strings.Contains(out, "("+test.name+")") {
					t.Errorf("%d: status %d: %s", test.toSandbox, got, out)
				}
				_, hint, _ = strings.Cut(out, "\n")
				out, err = shell(t, nil, fmt.Sprintf("ulimit %s %d; exec $CUBBY version", test.flag, test.toSandbox))
				if err != nil || !strings.HasPrefix(out, "cubby ") {
					t.Errorf("what needs no sandbox, with %d: %v: %s", test.toSandbox, err, out)
				}
			}
			for _, limit := range test.toGo {
				for _, command := range []string{"version", "run -e 1"} {
					script := fmt.Sprintf("%s 'ulimit %s %d; exec $CUBBY %s'", user, test.flag, limit, command)
					out, err := shell(t, nil, script)
					message, advice, _ := strings.Cut(out, "\n")
					if got := exitCode(t, err); got != exitCannotRun || !strings.Contains(message, "("+test.name+"), too ") ||
						!strings.HasPrefix(advice, "hint: raise it: `ulimit "+test.flag) || strings.Count(out, "\n") != 2 {
						t.Errorf("%s with %d: status %d: %s", command, limit, got, out)
					}
					if hint != "" && advice != hint {
						t.Errorf("%s with %d: %q, but with %d: %q", command, limit, advice, test.toSandbox, hint)
					}
				}
			}
		})
	}
	// What the program may raise itself needs no word.
	out, err := shell(t, nil, "ulimit -Sv 300000; ulimit -Sd 60000; ulimit -Sn 8; exec $CUBBY version")
	if err != nil || !strings.HasPrefix(out, "cubby ") {
		t.Errorf("soft limits: %v: %s", err, out)
	}
	if os.Getuid() == 0 {
		// Root of a user namespace is bounded, and told so by Go.
		if out, _ := shell(t, nil, "ulimit -u 1; exec $CUBBY version"); strings.Contains(out, "too few to start") {
			t.Errorf("processes of root: %s", out)
		}
	}
}
