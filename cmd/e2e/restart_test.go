//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestRestart: a server that is stopped or killed leaves nothing that runs, and
// its next start knows what became of every sandbox.
func TestRestart(t *testing.T) {
	testenv.CheckLeaks(t)
	dir, whole := os.Getenv("TMPDIR"), t
	s := startIn(t, dir)
	key := s.Key
	if key == "" {
		t.Fatal("the first start shows no key")
	}
	for _, test := range []struct {
		name string
		why  string // as the record says
		end  func(t *testing.T, s *server)
	}{
		{"stopped", "stopped", func(t *testing.T, s *server) { s.stop(t) }},
		{"killed", "stopped", func(t *testing.T, s *server) {
			if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.cmd.Wait() // says that it was killed
			// The process that it watched over ends its sandboxes yet.
			until(t, "all of the server is gone", func() error {
				if pids := s.processes(t); len(pids) > 0 {
					return fmt.Errorf("processes %v", pids)
				}
				return nil
			})
		}},
		{"its child killed", "killed; this was found at its next start", func(t *testing.T, s *server) {
			for _, pid := range s.processes(t) {
				if pid != s.cmd.Process.Pid {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.cmd.Wait(); err == nil {
				t.Error("a server without the process that serves says that all is well")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := s.create(t, key)
			s.upload(t, b, "/tmp/x", "x")
			test.end(t, s)
			next := startIn(t, dir)
			if next.Key != "" && next.Key != key {
				t.Errorf("a later start shows the key %q", next.Key)
			}
			for _, ask := range []string{"/sandboxes", "/v2/sandboxes"} {
				var all []struct{ SandboxID string }
				call(t, http.DefaultClient, "GET", next.URL+ask, nil, "X-API-KEY", key).decode(t, 200, &all)
				if len(all) != 0 {
					t.Errorf("%s: %+v", ask, all)
				}
			}
			// Its team is told why it ended, by both planes, and who has its access
			// token, which outlives the server; nobody else is.
			stranger, _ := next.newKey(t, "strangers")
			checkError(t, call(t, http.DefaultClient, "GET", next.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", key), http.StatusNotFound, "the server was "+test.why)
			checkError(t, call(t, http.DefaultClient, "GET", next.URL+"/health", nil, append(b.routed(portEnvd), "X-API-KEY", key)...),
				http.StatusBadGateway, "the server was "+test.why)
			checkError(t, call(t, http.DefaultClient, "GET", next.URL+"/health", nil, b.routed(portEnvd)...), http.StatusBadGateway, "the server was "+test.why)
			next.toldBySDK(t, b, "the server was "+test.why)
			guessed := box{ID: b.ID, Token: strings.Repeat("0", len(b.Token)-8) + b.Token[len(b.Token)-8:]}
			for _, a := range []answer{
				call(t, http.DefaultClient, "GET", next.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", stranger),
				call(t, http.DefaultClient, "GET", next.URL+"/health", nil, append(guessed.routed(portEnvd), "X-API-KEY", stranger)...),
			} {
				if a.Status < 400 || strings.Contains(string(a.Body), "ended") {
					t.Errorf("somebody else is told %d %s", a.Status, a.Body)
				}
			}
			var logs struct{ Logs []struct{ Message string } }
			call(t, http.DefaultClient, "GET", next.URL+"/v2/sandboxes/"+b.ID+"/logs", nil, "X-API-KEY", key).decode(t, 200, &logs)
			if n := len(logs.Logs); n != 2 || !strings.Contains(logs.Logs[1].Message, "the server was "+test.why) {
				t.Errorf("its log: %+v", logs)
			}
			next.create(t, key)
			next.stop(t)
			s = startIn(whole, dir)
		})
	}

	t.Run("a folder whose state cannot be read is left alone", func(t *testing.T) {
		s.stop(t)
		broken := filepath.Join(dir, "broken", "data")
		if err := os.MkdirAll(broken, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(broken, "cubby.db")
		if err := os.WriteFile(path, []byte("no database at all, but somebody's"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := serveOnce(t, broken)
		if err == nil {
			t.Errorf("it serves: %s", out)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "no database at all, but somebody's" {
			t.Errorf("the file was touched: %q, %v", text, err)
		}
		t.Logf("it says: %s", out)
	})
}

// toldBySDK checks what E2B's packages say of a sandbox that an earlier server ended.
func (s *server) toldBySDK(t *testing.T, b box, why string) {
	t.Run("as the packages say", func(t *testing.T) {
		needNode(t)
		install(t, "new")
		s.node(t, "new", "js/alone/ended.test.mjs", "CUBBY_ENDED="+b.ID, "CUBBY_TOKEN="+b.Token, "CUBBY_WHY="+why)
	})
}

// TestOneServerForAFolder: a second server on the same folder is refused and
// harms nothing.
func TestOneServerForAFolder(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	out, err := serveOnce(t, s.DataDir)
	if err == nil {
		t.Errorf("it serves: %s", out)
	}
	if want := fmt.Sprint(s.cmd.Process.Pid); len(out) == 0 {
		t.Errorf("it says nothing, not even %s", want)
	}
	if out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "echo fine"}, b.routed(portEnvd)...); err != nil || out.Stdout != "fine\n" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestShutdown: a server that is asked to end does so whatever its clients do, and
// no stream of theirs looks whole.
func TestShutdown(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	ended := make(chan error)
	go func() {
		_, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "touch /tmp/began; sleep 600"}, b.routed(portEnvd)...)
		ended <- err
	}()
	until(t, "the command begins", func() error {
		if a := call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/began", nil, b.routed(portEnvd)...); a.Status != 200 {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	fmt.Fprint(s.dial(t), "GET /sandboxes HTTP/1.1\r\nHost: x\r\n")                                                        // and no more
	fmt.Fprintf(s.dial(t), "CONNECT %s-%s.example.test:80 HTTP/1.1\r\nHost: x\r\n\r\n", portEnvd, b.ID)                    // and nothing in it
	fmt.Fprintf(s.dial(t), "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: %s\r\nContent-Length: 9\r\n\r\n{", s.Key) // half a body
	s.stop(t)
	if err := <-ended; err == nil {
		t.Error("the command's stream looks whole")
	}
}
