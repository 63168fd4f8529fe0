//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// terminalModel answers what the tests ask.
const terminalModel = `# A script written by us. Not a recording of any model.
steps:
  - when: "first line\nsecond line"
    repeat: true
    text: Two lines.
  - when: secret
    text: It is safe.
  - when: sleep
    text: |
      It sleeps.

      ` + "```python" + `
      import time
      time.sleep(600)
      ` + "```" + `
  - repeat: true
    text: A plain answer.
`

// session is a `cubby agent` on a terminal.
type session struct {
	t        *testing.T
	terminal *os.File
	cmd      *exec.Cmd
	said     chan string
	seen     string
	home     string
}

// chatting starts a chat on a terminal that answers no question of its program's.
func chatting(t *testing.T, home string, columns uint16, env []string, args ...string) *session {
	t.Helper()
	return chattingIn(t, "", home, columns, env, args...)
}

// chattingIn starts a shell, if one is named, that has the chat as its command chat.
func chattingIn(t *testing.T, shell, home string, columns uint16, env []string, args ...string) *session {
	t.Helper()
	script, err := modelserver.Parse("model.yaml", []byte(terminalModel))
	if err != nil {
		t.Fatal(err)
	}
	model, err := modelserver.Start(modelserver.Config{Script: script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = model.Close() }) // what it misses is in what is seen
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// What the scripts of this package call cubby.
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "cubby")); err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, home: home, said: make(chan string, 1000)}
	s.cmd = exec.Command(filepath.Join(bin, "cubby"), append([]string{"agent", "--model", "m", "--approve=false"}, args...)...)
	if shell != "" {
		rc := filepath.Join(bin, "rc")
		chat := fmt.Sprintf("PS1=shell:; HISTFILE=\nchat() { %s; }\n", strings.Join(s.cmd.Args, " "))
		if err := os.WriteFile(rc, []byte(chat), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cmd = exec.Command(shell, "--rcfile", rc, "--noediting", "-i")
	}
	s.cmd.Dir = t.TempDir()
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm-256color", "CUBBY_FAKE=1", "CODE_EXECUTOR_TYPE=unsafe_local",
		"OPENAI_BASE_URL=" + model.OpenAIURL(), "OPENAI_API_KEY=sk-scripted",
	}, env...)
	s.terminal, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.terminal.Close() })
	go func() {
		defer close(s.said)
		for b := make([]byte, 4096); ; {
			n, err := s.terminal.Read(b)
			if n > 0 {
				s.said <- string(b[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *session) send(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.terminal, text); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for a text, and forgets what came before it.
func (s *session) until(want string) string {
	s.t.Helper()
	late := time.After(time.Minute)
	for !strings.Contains(s.seen, want) {
		select {
		case text, ok := <-s.said:
			if !ok {
				s.t.Fatalf("it ended; no %q in %q", want, s.seen)
			}
			s.seen += text
		case <-late:
			_ = s.cmd.Process.Kill()
			s.t.Fatalf("no %q in %q", want, s.seen)
		}
	}
	before, after, _ := strings.Cut(s.seen, want)
	s.seen = after
	return before
}

// end waits for the end and returns its status.
func (s *session) end() int {
	s.t.Helper()
	defer time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() }).Stop()
	for text := range s.said {
		s.seen += text
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// prompt is what is there when a question can be typed.
const prompt = "\x1b[?2004h> "

func TestAgentTyped(t *testing.T) {
	home := t.TempDir()
	s := chatting(t, home, 80, nil)
	s.until(prompt)
	s.send("first lane\x1b[D\x1b[D\x7fi\x05\x1b\rsecond line\r") // repaired, and of two lines
	s.until("Two lines.")
	s.until(prompt)
	s.send("\x1b[200~first line\r\nsecond \x1b[31mline\x03\x1b[201~") // pasted: nothing of it is a key
	s.send("\r")
	s.until("Two lines.")
	s.until(prompt)
	s.send(" a secret\r")
	s.until("It is safe.")
	s.until(prompt)
	s.send("half a ques\x03") // clears the line
	s.until("^C")
	s.until("Ctrl-C again")
	s.until(prompt)
	s.send("sleep\r")
	s.until("It sleeps.")
	s.until("running")
	s.send("\x03") // stops the answer
	s.until("stopped; Ctrl-C again")
	s.until(prompt)
	s.send("\x12first\r") // the history, searched
	s.until("A plain answer.")
	s.until(prompt)
	s.send("\x04")
	if code := s.end(); code != exitOK {
		t.Errorf("status %d, having printed %q", code, s.seen)
	}
	if !strings.Contains(s.seen, "\x1b[?2004l") {
		t.Errorf("bracketed paste stays on: %q", s.seen)
	}
	path := filepath.Join(home, ".local/state/cubby/agent-history")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	b, err := os.ReadFile(path)
	if want := "\"first line\\nsecond line\"\n\"sleep\"\n\"first line\\nsecond line\"\n"; err != nil || string(b) != want {
		t.Errorf("history %q, %v, want %q", b, err, want)
	}

	// The next chat has it. Ctrl-C twice leaves.
	s = chatting(t, home, 40, nil)
	s.until(prompt)
	s.send("\x1b[A\x1b[A\x10\r")
	s.until("It sleeps.")
	s.until("running")
	s.send("\x03")
	s.until(prompt)
	s.send("\x03")
	if code := s.end(); code != exitInterrupted || !strings.Contains(s.seen, "cubby: interrupted") {
		t.Errorf("status %d, having printed %q", code, s.seen)
	}
}

// TestAgentTerminalChanges: the text follows the size of the window, and Ctrl-Z where no
// shell could have the program go on loses nothing.
func TestAgentTerminalChanges(t *testing.T) {
	s := chatting(t, t.TempDir(), 80, nil)
	s.until(prompt)
	s.send("the quick brown fox jumps")
	s.until("jumps")
	if err := pty.Setsize(s.terminal, &pty.Winsize{Rows: 24, Cols: 20}); err != nil {
		t.Fatal(err)
	}
	s.until("> the quick brown f\x1b[K\r\n  ox jumps\x1b[K")
	s.send("\x1a")
	s.until("^Z")
	s.until("ox jumps\x1b[K")
	s.send("\r")
	s.until("A plain answer.")
	s.until(prompt)
	s.send("\x04")
	if code := s.end(); code != exitOK {
		t.Errorf("status %d, having printed %q", code, s.seen)
	}
}

// TestAgentSuspended: in a shell, Ctrl-Z stops the chat with the terminal in its modes,
// and fg goes on with what was typed.
func TestAgentSuspended(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	s := chattingIn(t, shell, t.TempDir(), 80, nil)
	s.until("shell:")
	s.send("stty -g; chat\r")
	s.until("chat\r\n")
	modes, _, _ := strings.Cut(s.until("Ask"), "\r")
	s.until(prompt)
	s.send("half a \x1a")
	s.until("Stopped")
	s.until("shell:")
	s.send("stty -g\r")
	s.until("\r\n")
	if got, _, _ := strings.Cut(s.until("shell:"), "\r"); got != modes {
		t.Errorf("modes %q, before %q", got, modes)
	}
	s.send("fg\r")
	s.until("\x1b[?2004h\r> half a ")
	s.send("question\r")
	s.until("A plain answer.")
	s.until(prompt)
	s.send("\x04")
	s.until("shell:")
	s.send("exit\r")
	s.end()
}

// TestAgentTypedAhead: what was typed before code was shown does not approve it.
func TestAgentTypedAhead(t *testing.T) {
	for _, name := range []string{"xterm", "dumb"} {
		t.Run(name, func(t *testing.T) {
			s := chatting(t, t.TempDir(), 80, []string{"TERM=" + name}, "--approve")
			s.until("> ")
			s.send("sleep\ry\ry\r")
			s.until("why not: ")
			s.send("n\r")
			s.until("did not approve")
			s.until("A plain answer.")
			s.until("> ")
			s.send("half a ques\x03") // clears the line
			s.until("Ctrl-C again")
			s.until("> ")
			s.send("\x03")
			code := s.end()
			if said := strings.ReplaceAll(s.seen, "\x1b[?2004l", ""); code != exitInterrupted || !strings.Contains(said, "\ncubby: interrupted") {
				t.Errorf("status %d, having printed %q", code, s.seen)
			}
		})
	}
}

// TestAgentTypedPlainly: a terminal that cannot move its cursor is told nothing but
// text, and nothing is kept where it cannot be private or is not to be.
func TestAgentTypedPlainly(t *testing.T) {
	home := t.TempDir()
	s := chatting(t, home, 80, []string{"TERM=dumb"}, "--private")
	s.until("> ")
	s.send("hello\r")
	s.until("A plain answer.")
	s.until("> ")
	s.send("\x04")
	if code := s.end(); code != exitOK {
		t.Errorf("status %d, having printed %q", code, s.seen)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(home, ".local/state/cubby")
	if err := os.MkdirAll(state, 0o755); err != nil {
		t.Fatal(err)
	}
	s = chatting(t, home, 80, nil)
	s.until(prompt)
	s.send("hello\r")
	s.until("A plain answer.")
	s.until(prompt)
	s.send("\x04")
	if code := s.end(); code != exitOK {
		t.Errorf("status %d, having printed %q", code, s.seen)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
