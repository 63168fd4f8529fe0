//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// The command `cubby` of the scripts is the program itself with the fake of
// this package where CUBBY_FAKE is set, else the real binary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cubby": cubbyCommand})
}

func cubbyCommand() {
	if mode := os.Getenv("CUBBY_FAKE"); mode != "" {
		os.Exit(execute(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}, openFake(mode), newEngineProgram()))
	}
	binary := os.Getenv("CUBBY_BINARY")
	err := syscall.Exec(binary, append([]string{binary}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "exec", binary, err)
	os.Exit(99)
}

// TestScripts are the command's behaviour that needs no sandbox.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Files: scripts(t, "cli"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("CUBBY_FAKE", "1")
			server := httptest.NewServer(newFakeServer())
			env.Defer(server.Close)
			env.Setenv("SERVER", server.URL) // which no script asks that does not name it
			return nil
		},
		Cmds: commands(),
	})
}

// python is the interpreter of the tests: Debian's, with its packages.
const python = "/usr/bin/python3"

// TestSandboxScripts are the same with real sandboxes.
func TestSandboxScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts sandboxes")
	}
	testenv.CheckLeaks(t)
	binary := testenv.Cubby(t)
	testscript.Run(t, testscript.Params{
		Files: scripts(t, "sandbox"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("CUBBY_BINARY", binary)
			env.Setenv("CUBBY_PYTHON", python)
			// A script's own folder is too deep for the sockets of a sandbox.
			env.Setenv("TMPDIR", os.TempDir())
			return nil
		},
		Cmds: commands(),
		// [module:NAME]: the Python of the tests has that module. [packed]: the program has
		// its engine packed inside, which one of `go install` has not.
		Condition: func(cond string) (bool, error) {
			if cond == "packed" {
				out, err := exec.Command(binary, "engine", "path").Output()
				return err == nil && !strings.HasPrefix(string(out), linkedText), nil
			}
			name, ok := strings.CutPrefix(cond, "module:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return exec.Command(python, "-c", "import "+name).Run() == nil, nil
		},
	})
}

func scripts(t *testing.T, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/script/" + prefix + "-*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts %s-*: %v", prefix, err)
	}
	return files
}

type command = func(ts *testscript.TestScript, neg bool, args []string)

func commands() map[string]command {
	return map[string]command{"status": statusCommand, "interrupt": interruptCommand, "signal": signalCommand, "serve": serveCommand, "create": createCommand, "web": webCommand}
}

// statusCommand is `status N command…`: the command must end with status N.
// What it printed is in the files stdout.txt and stderr.txt.
func statusCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; fmt.Sprint(got) != want {
		ts.Fatalf("exit status %d, want %s", got, want)
	}
}

// webCommand is `web`: a server of HTTP on this machine's loopback answers every
// request with "hello" until the script ends; its port is in PORT.
func webCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: web")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello")
	}))
	ts.Defer(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	ts.Check(err)
	ts.Setenv("PORT", port)
}

// serveCommand is `serve ARGUMENTS…`: a `cubby serve` runs until the script ends, as the user
// whose HOME is from then on the script's; its URL is in SERVER, a key in KEY.
func serveCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: serve ARGUMENTS…")
	}
	server, err := testenv.StartServer(ts.Getenv("WORK"), args...)
	ts.Check(err)
	ts.Defer(func() {
		if err := server.Stop(); err != nil {
			ts.Logf("%v", err)
		}
	})
	ts.Setenv("HOME", filepath.Join(ts.Getenv("WORK"), "home"))
	ts.Setenv("SERVER", server.URL)
	ts.Setenv("KEY", server.Key)
}

// createCommand is `create NAME VALUE`: the server of `serve` gets a sandbox with
// that label, whose id is in ID.
func createCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: create NAME VALUE")
	}
	client, err := cubby.NewClient(cubby.Config{APIURL: ts.Getenv("SERVER"), SandboxURL: ts.Getenv("SERVER"), APIKey: ts.Getenv("KEY")})
	ts.Check(err)
	sbx, err := client.Create(context.Background(), cubby.WithTemplate("base"), cubby.WithMetadata(map[string]string{args[0]: args[1]}))
	ts.Check(err)
	ts.Setenv("ID", sbx.ID())
}

// interruptCommand is `interrupt TEXT command…`: signal INT 130 TEXT command.
func interruptCommand(ts *testscript.TestScript, neg bool, args []string) {
	signalCommand(ts, neg, append([]string{"INT", fmt.Sprint(exitInterrupted)}, args...))
}

// signalCommand is `signal NAME STATUS TEXT command…`: once the command has printed
// TEXT it gets that signal, and must then end with STATUS within a minute.
func signalCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: signal NAME STATUS TEXT command…")
	}
	sig, want, text, args := unix.SignalNum("SIG"+args[0]), args[1], args[2], args[3:]
	// A test that runs in the background or under nohup ignores signals that its
	// children would then ignore, too. What it handles is theirs by default.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, sig)
	defer signal.Stop(handled)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, k := range []string{"CUBBY_FAKE", "CUBBY_BINARY", "CUBBY_PYTHON", "HOME", "TMPDIR", "E2B_API_URL", "E2B_API_KEY"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	buffer := make([]byte, len(text))
	if _, err := out.Read(buffer); err != nil || string(buffer) != text {
		_ = cmd.Process.Kill()
		ts.Fatalf("printed %q, %v", buffer, err)
	}
	ts.Check(cmd.Process.Signal(sig))
	_ = cmd.Wait()
	got := cmd.ProcessState.ExitCode()
	if ended, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ended.Signaled() {
		got = 128 + int(ended.Signal()) // what a shell calls it
	}
	if fmt.Sprint(got) != want {
		ts.Fatalf("exit status %d, want %s", got, want)
	}
}
