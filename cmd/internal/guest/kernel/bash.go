package kernel

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bashLoop is what the shell runs; see bash.sh. It is one line, so that the lines
// of a cell count from 1 in bash's messages.
const bashLoop = `. "$2/bash.sh"; { while :; do while __cubby_status=$?; builtin trap - DEBUG ERR RETURN; __cubby_next; do builtin eval "$__cubby_code" <"$__cubby_in" >&14 2>&15; done; done; } 200>&- 201>&- 202>&- 203>&- 204>&- 205>&-`

// firstShellFD is where the shell finds our descriptors; lower ones are the code's.
const firstShellFD = 200

// BashMain is the Bash kernel: it speaks the wire of the kernels on descriptor 3
// and drives a shell, os.Args[2], with the script from the folder os.Args[3]. It
// returns the exit status of the process, or ends it by the signal that ended the
// shell. Nothing else may run in the process.
//
// The shell gets the code through an anonymous file in memory: no argument, no
// terminal, no file on a disk that may be full, and no limit on the length of a
// line. Orders (`run ID`, `restore`, `fresh`) and answers (`hello`, `ready
// STATUS`, `start ID`, `input`, `done ID STATUS`, `leave`) are short lines on two pipes.
func BashMain() int {
	// The shell dies with the thread that started it, so that thread must stay.
	runtime.LockOSThread()
	if len(os.Args) != 4 {
		fmt.Fprintf(os.Stderr, "usage: %s SHELL DIR\n", BashArg)
		return 2
	}
	unix.CloseOnExec(3)
	status, err := runBash(os.Args[2], os.Args[3], os.NewFile(3, "guest"))
	if err != nil {
		slog.Error("bash kernel", "err", err)
		return 1
	}
	return status
}

// bashKernel is one shell and the pipes and files that drive it.
type bashKernel struct {
	wire      io.Writer
	code      *os.File // memory file: what to run
	state     *os.File // memory file: what a shell that ended left
	orders    *os.File
	mu        sync.Mutex // guards the rest, between the requests, the answers and the signals
	id        int64      // request that runs; 0 if none
	started   bool       // the shell has read it
	interrupt bool       // a SIGINT came before it had
	pid       int
}

func runBash(shell, dir string, wire io.ReadWriter) (int, error) {
	k := &bashKernel{wire: wire}
	var err error
	if k.code, err = memFile("code"); err != nil {
		return 0, err
	}
	if k.state, err = memFile("state"); err != nil {
		return 0, err
	}
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	answersR, answersW, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	k.orders = ordersW

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt)

	cmd := exec.Command(shell, "--norc", "--noprofile", "-c", bashLoop, "bash", shell, dir)
	cmd.ExtraFiles = make([]*os.File, firstShellFD-3, firstShellFD+3)
	cmd.ExtraFiles = append(cmd.ExtraFiles, k.code, k.state, ordersR, answersW, os.Stdout, os.Stderr)
	// A group of its own, so that an interrupt reaches the shell and its foreground
	// children together, as it does from a terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", shell, err)
	}
	k.pid = cmd.Process.Pid
	ordersR.Close()
	answersW.Close()

	go func() {
		for range signals {
			k.onInterrupt()
		}
	}()
	go func() {
		if err := k.readRequests(wire); err != nil && !errors.Is(err, io.EOF) {
			slog.Error("bash kernel: read a request", "err", err)
		}
		// The guest has closed the wire: end the shell and what runs in its foreground.
		_ = syscall.Kill(-k.pid, syscall.SIGKILL)
	}()
	// Ends with the shell: a background job does not have this descriptor.
	if err := k.readAnswers(answersR); err != nil {
		slog.Error("bash kernel: read an answer", "err", err)
	}
	_ = cmd.Wait()
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), ws.Signal())
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

func memFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate("cubby-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readRequests hands requests to the shell until the guest closes the wire. The
// guest sends one at a time.
func (k *bashKernel) readRequests(r io.Reader) error {
	dec := json.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	for {
		var q Request
		if err := dec.Decode(&q); err != nil {
			return err
		}
		if q.Op != "execute" {
			continue
		}
		if err := k.run(q); err != nil {
			return err
		}
	}
}

func (k *bashKernel) run(q Request) error {
	setup, teardown := bashEnv(q.Env, q.Cwd)
	setup = bashKeep(q.Keep) + setup
	if q.Anew {
		setup = bashAnew() + setup
	}
	first := bashProgram(q, &setup, &teardown)
	if _, err := k.code.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the code: %w", err)
	}
	if err := k.code.Truncate(0); err != nil {
		return fmt.Errorf("empty the code: %w", err)
	}
	for _, s := range []string{setup, teardown, first + q.Code} {
		if _, err := io.WriteString(k.code, strings.ReplaceAll(s, "\x00", "")+"\x00"); err != nil {
			return fmt.Errorf("write the code: %w", err)
		}
	}
	// The shell shares the position, so it reads from here.
	if _, err := k.code.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the code: %w", err)
	}
	if _, err := k.state.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the state: %w", err)
	}
	if err := k.state.Truncate(0); err != nil {
		return fmt.Errorf("empty the state: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.id, k.started, k.interrupt = q.ID, false, false
	_, err := fmt.Fprintf(k.orders, "run %d\n", q.ID)
	return err
}

// readAnswers turns what the shell says into events until the shell ends.
func (k *bashKernel) readAnswers(r io.Reader) error {
	lines := bufio.NewScanner(r)
	ready := false
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch verb {
		case "hello":
			err = k.greet()
		case "ready":
			if !ready {
				ready = true
				err = k.send(Event{Ev: "ready"})
				break
			}
			// The cell ended the shell, and a fresh one has taken over.
			status, _ := strconv.Atoi(rest)
			err = k.done(status)
		case "start":
			k.mu.Lock()
			k.started = true
			if k.interrupt {
				_ = syscall.Kill(-k.pid, syscall.SIGINT)
			}
			k.mu.Unlock()
		case "input":
			k.mu.Lock()
			id := k.id
			k.mu.Unlock()
			err = k.send(Event{Ev: "input", ID: id})
		case "leave":
			// A fresh shell cannot be interrupted before it is ready.
			k.mu.Lock()
			k.started = false
			k.mu.Unlock()
		case "done":
			_, s, _ := strings.Cut(rest, " ")
			status, _ := strconv.Atoi(s)
			err = k.done(status)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// greet tells a shell that starts whether the one before it left a state to restore.
func (k *bashKernel) greet() error {
	end, err := k.state.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("find the state: %w", err)
	}
	if _, err := k.state.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the state: %w", err)
	}
	order := "fresh\n"
	if end > 0 {
		order = "restore\n"
	}
	_, err = io.WriteString(k.orders, order)
	return err
}

func (k *bashKernel) done(status int) error {
	k.mu.Lock()
	id := k.id
	k.id, k.started = 0, false
	k.mu.Unlock()
	if id == 0 {
		return nil
	}
	return k.send(Event{Ev: "done", ID: id, ExitCode: status})
}

func (k *bashKernel) onInterrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.id == 0:
	case !k.started:
		// A signal now could make the shell drop the order, or come before the code
		// runs and be lost: it is sent when the shell has read the order.
		k.interrupt = true
	default:
		_ = syscall.Kill(-k.pid, syscall.SIGINT)
	}
}

func (k *bashKernel) send(e Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	if _, err := k.wire.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}

// bashKeep returns the commands that set variables for good. Their names are ones
// that Bash can hold as variables.
func bashKeep(vars map[string]string) string {
	var set strings.Builder
	for n, value := range vars {
		fmt.Fprintf(&set, "builtin export %s=%s\n", n, bashQuote(value))
	}
	return set.String()
}

// bashAnew returns the command that seeds RANDOM, unless the code has taken it for
// a variable of its own, which does not change by itself. SRANDOM needs no seed.
func bashAnew() string {
	var seed [4]byte
	_, _ = rand.Read(seed[:]) // never fails
	return fmt.Sprintf("[[ $RANDOM$RANDOM == \"$RANDOM$RANDOM\" ]] || RANDOM=%d\n", binary.NativeEndian.Uint32(seed[:]))
}

// bashEnv returns the commands that set the environment and folder of one call,
// and those that restore them. A name that Bash cannot hold is left out, with a
// message on stderr.
func bashEnv(env map[string]string, cwd string) (setup, teardown string) {
	var set, reset strings.Builder
	names := make([]string, 0, len(env))
	for n := range env {
		names = append(names, n)
	}
	sort.Strings(names)
	for i, n := range names {
		if !isName(n) {
			fmt.Fprintf(&set, "builtin printf '[cubby] bash cannot hold a variable named %%q\\n' %s >&2\n", bashQuote(n))
			continue
		}
		old := fmt.Sprintf("__cubby_old%d", i)
		fmt.Fprintf(&set, "if [[ -v %s ]]; then %s=\"$%s\" %sx=\"${%s@a}\"; else builtin unset -v %s %sx; fi\nbuiltin export %s=%s\n",
			n, old, n, old, n, old, old, n, bashQuote(env[n]))
		fmt.Fprintf(&reset, "if [[ -v %s ]]; then %s=$%s; [[ $%sx == *x* ]] || builtin export -n %s; else builtin unset -v %s; fi\nbuiltin unset -v %s %sx\n",
			old, n, old, old, n, n, old, old)
	}
	if cwd != "" {
		fmt.Fprintf(&set, "__cubby_pwd=$PWD\nbuiltin cd -- %s\n", bashQuote(cwd))
		reset.WriteString("builtin cd -- \"$__cubby_pwd\"\nbuiltin unset -v __cubby_pwd\n")
	} else {
		set.WriteString("builtin true\n")
	}
	return set.String(), reset.String()
}

// bashProgram adds what q says of its program and its input to setup and
// teardown, and returns what stands before the code, on its first line. The
// positional parameters stay, as they do when a cell sets them itself.
func bashProgram(q Request, setup, teardown *string) (first string) {
	if q.Stdin != "" {
		*setup = "__cubby_in=" + bashQuote(q.Stdin) + "\n" + *setup
		*teardown += "__cubby_in=/dev/null\n"
		first = "builtin printf 'input\\n' >&13; " // the pipe is open by then
	}
	if q.Program == nil {
		return first
	}
	name := q.Program.Name
	if name == "" || name == "-" {
		name = "bash"
	}
	*setup = "BASH_ARGV0=" + bashQuote(name) + "\n" + *setup
	*teardown += "BASH_ARGV0=bash\n"
	first += "builtin set --"
	for _, a := range q.Program.Args {
		first += " " + bashQuoteLine(a)
	}
	return first + "; "
}

// bashQuoteLine is bashQuote in one line, whatever s holds.
func bashQuoteLine(s string) string {
	if !strings.Contains(s, "\n") {
		return bashQuote(s)
	}
	return strings.ReplaceAll(bashQuote(s), "\n", `'$'\n''`)
}

func bashQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
