//go:build linux

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestOnATerminal: what the code leaves open ends with it, so that what is said
// next is read as it was meant.
func TestOnATerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	for _, c := range []struct{ name, code, want string }{
		{"a colour", `{"type":"stdout","text":"\u001b[31mred"}`, "\x1b[31mred\x1b[0m\r\n"},
		{"a title without an end", `{"type":"stderr","text":"a\u001b]0;title"}` + "\n" + `{"type":"end_of_execution","timed_out":true}`, "a\r\ncubby: timed out after 1m (--timeout)\r\n"},
		{"a carriage return", `{"type":"stdout","text":"all files were saved\r"}` + "\n" + `{"type":"end_of_execution","truncated":true}`, "all files were saved\r\r\ncubby: output was cut: the limit is 10MiB a stream (--max-output)\r\n"},
		{"turned text", `{"type":"stdout","text":"a\u202eb\u2066\n"}`, `a\u202eb\u2066` + "\r\n"},
		{"a name", `{"type":"error","name":"E\u202e","value":"\u001b[2Jv"}`, `E\u202e: v` + "\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			terminal, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			execute(t.Context(), []string{"run", "-e", c.code}, stdio{strings.NewReader(""), tty, tty}, openFake("1"), newEngineProgram())
			tty.Close()
			b, _ := io.ReadAll(terminal) // its end is an error
			// The spinner may have been there.
			got := string(b)
			if _, after, ok := strings.Cut(got, "\r\x1b[K"); ok {
				got = after
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestTyped talks to code line by line on a terminal, until Ctrl-D.
func TestTyped(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a sandbox")
	}
	testenv.CheckLeaks(t)
	cmd := exec.Command(testenv.Cubby(t), "run", "-e", "import sys\nprint([input('name? ')])\nfor l in sys.stdin: print([l], flush=True)\nprint('end')")
	cmd.Env = append(os.Environ(), "CUBBY_PYTHON="+python)
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	guard := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	r := bufio.NewReader(terminal)
	said := ""
	until := func(want string) {
		t.Helper()
		for !strings.Contains(said, want) {
			b := make([]byte, 4096)
			n, err := r.Read(b)
			said += string(b[:n])
			if err != nil {
				t.Fatalf("%v; no %q in %q", err, want, said)
			}
		}
		said = ""
	}
	until("name? ")
	for _, line := range []string{"Ann", "two"} {
		if _, err := io.WriteString(terminal, line+"\n"); err != nil {
			t.Fatal(err)
		}
		until("['" + line)
	}
	if _, err := terminal.Write([]byte{4}); err != nil { // Ctrl-D
		t.Fatal(err)
	}
	until("end")
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
