//go:build linux

package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds the start and the end of a server on a machine that is busy.
const patience = 2 * time.Minute

// Server is a `cubby serve` that runs.
type Server struct {
	URL, Key string
	cmd      *exec.Cmd
	log      *serverLog
}

// Serve runs `cubby serve` with further arguments until the test ends, and fails
// the test if it leaves anything behind.
func Serve(t testing.TB, args ...string) *Server {
	t.Helper()
	CheckLeaks(t)
	s, err := StartServer(os.Getenv("TMPDIR"), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log)
		}
	})
	return s
}

// StartServer runs `cubby serve` with data and a home in dir. The caller stops
// it.
func StartServer(dir string, args ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	s := &Server{log: &serverLog{}}
	s.cmd = exec.Command(filepath.Join(bin, "cubby"), append([]string{
		"serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"), "--python", "/usr/bin/python3",
	}, args...)...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "XDG_") && !strings.HasPrefix(entry, "HOME=") && !strings.HasPrefix(entry, "E2B_") {
			s.cmd.Env = append(s.cmd.Env, entry)
		}
	}
	s.cmd.Env = append(s.cmd.Env, "HOME="+home)
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	found := make(chan error, 1)
	go func() { found <- s.read(stdout) }()
	select {
	case err = <-found:
	case <-time.After(patience):
		err = fmt.Errorf("it printed no address within %v", patience)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cubby serve: %w\n%s", err, s.log), s.Stop())
	}
	return s, nil
}

// read takes address and key from the lines to paste, and drains the rest.
func (s *Server) read(stdout io.Reader) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		switch strings.TrimSpace(name) {
		case "export E2B_API_URL":
			s.URL = value
		case "export E2B_API_KEY":
			s.Key, _, _ = strings.Cut(value, " ")
		}
		if s.URL != "" && s.Key != "" {
			go io.Copy(io.Discard, stdout)
			return nil
		}
	}
	return errors.Join(errors.New("it ended without the lines to paste"), lines.Err())
}

// Stop ends the server as a service manager would.
func (s *Server) Stop() error {
	if s.cmd.ProcessState != nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.AfterFunc(patience, func() { s.cmd.Process.Kill() })
	defer timer.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("cubby serve ended: %w", err)
	}
	return nil
}

// serverLog keeps the last lines.
type serverLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 64<<10 {
		l.b.Next(l.b.Len() - 4<<10)
	}
	return l.b.Write(p)
}

func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
