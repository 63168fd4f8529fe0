//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestSecretValue: what is kept is the line as it is written, without its end.
func TestSecretValue(t *testing.T) {
	for in, want := range map[string]string{
		"hunter2": "hunter2", "hunter2\n": "hunter2", "hunter2\r\n": "hunter2", " a b\t\n": " a b\t", "é=\"$x\"\n": "é=\"$x\"",
	} {
		path := filepath.Join(t.TempDir(), "value")
		if err := os.WriteFile(path, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, from := range [][]string{nil, {"--from-file", path}} {
			f, r := onFake(t)
			var out, errs bytes.Buffer
			code := execute(t.Context(), append([]string{"secrets", "set", "Key", "--server", r.at.APIURL}, from...),
				stdio{strings.NewReader(in), &out, &errs}, nil, newEngineProgram())
			if kept := f.secrets[len(f.secrets)-1]; code != exitOK || kept.value != want || kept.Name != "key" || out.Len() > 0 {
				t.Errorf("%q %v: status %d, kept %+v, %s%s", in, from, code, kept, &out, &errs)
			}
		}
	}
}

// TestSecretTyped: a value is asked for on a terminal, which does not show it, and which
// is as it was afterwards, also after Ctrl-C.
func TestSecretTyped(t *testing.T) {
	for _, test := range []struct {
		name, typed string
		kill        bool
		status      int
		want        string
	}{
		{"a value", "hunter2\n", false, exitOK, "hunter2"},
		{"nothing", "\n", false, exitUsage, ""},
		{"Ctrl-C", "hunt", true, exitInterrupted, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, r := onFake(t)
			terminal, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			ended := make(chan int)
			go func() {
				ended <- execute(t.Context(), []string{"secrets", "set", "key", "--server", r.at.APIURL}, stdio{tty, io.Discard, tty}, nil, newEngineProgram())
			}()
			for deadline := time.Now().Add(20 * time.Second); echoes(t, tty); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the terminal shows what is typed")
				}
			}
			if _, err := io.WriteString(terminal, test.typed); err != nil {
				t.Fatal(err)
			}
			if test.kill {
				if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			code := <-ended
			if !echoes(t, tty) {
				t.Error("the terminal is left silent")
			}
			if test.kill { // lets go of the terminal
				if _, err := io.WriteString(terminal, "\n"); err != nil {
					t.Fatal(err)
				}
			}
			tty.Close()
			said, _ := io.ReadAll(terminal) // its end is an error
			kept := f.secrets[len(f.secrets)-1].value
			if code != test.status || kept != test.want || !strings.Contains(string(said), "Value of key (it is not shown): \r\n") || strings.Contains(string(said), "hunter2") {
				t.Errorf("status %d, kept %q, said %q", code, kept, said)
			}
		})
	}
}

func echoes(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}
