package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// What must hold between processes is tested with processes: this test binary
// again, told by helperVar which part to play, on the data folder dirVar.
const (
	helperVar = "CUBBY_TEST_STORE_HELPER"
	dirVar    = "CUBBY_TEST_STORE_DIR"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		if err := helpers[name](context.Background(), os.Getenv(dirVar)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Each prints what it did, a line at a time, once it is done.
var helpers = map[string]func(ctx context.Context, dir string) error{
	"bootstrap": func(ctx context.Context, dir string) error {
		s, err := Open(ctx, dir)
		if err != nil {
			return err
		}
		defer s.Close()
		team, _, created, err := s.Bootstrap(ctx)
		if err != nil {
			return err
		}
		fmt.Println(created, team)
		return nil
	},
	// Makes and ends sandboxes and makes keys until it is killed.
	"write": func(ctx context.Context, dir string) error {
		s, err := Open(ctx, dir)
		if err != nil {
			return err
		}
		team, _, _, err := s.Bootstrap(ctx)
		if err != nil {
			return err
		}
		for i := 0; ; i++ {
			b := testSandbox(team, fmt.Sprintf("i%d-%d", os.Getpid(), i))
			if err := s.PutSandbox(ctx, b); err != nil {
				return err
			}
			fmt.Println("sandbox", b.ID)
			if i%3 == 0 {
				if err := end(ctx, s, b, time.Now(), "test"); err != nil {
					return err
				}
				fmt.Println("ended", b.ID)
			}
			if i%5 == 0 {
				_, secret, err := s.CreateKey(ctx, team, "")
				if err != nil {
					return err
				}
				fmt.Println("key", secret)
			}
		}
	},
	// Makes 20 keys and revokes the half of them.
	"keys": func(ctx context.Context, dir string) error {
		s, err := Open(ctx, dir)
		if err != nil {
			return err
		}
		defer s.Close()
		team, _, _, err := s.Bootstrap(ctx)
		if err != nil {
			return err
		}
		for i := range 20 {
			k, secret, err := s.CreateKey(ctx, team, "")
			if err != nil {
				return err
			}
			verb := "good"
			if i%2 == 0 {
				verb = "revoked"
				if _, err := s.RevokeKey(ctx, k.ID); err != nil {
					return err
				}
			}
			fmt.Println(verb, secret)
		}
		return nil
	},
	// Revokes the keys whose IDs it reads.
	"revoke": func(ctx context.Context, dir string) error {
		s, err := Open(ctx, dir)
		if err != nil {
			return err
		}
		defer s.Close()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if _, err := s.RevokeKey(ctx, lines.Text()); err != nil {
				return err
			}
			fmt.Println("revoked")
		}
		return nil
	},
	"lock": func(ctx context.Context, dir string) error {
		s, err := Open(ctx, dir)
		if err != nil {
			return err
		}
		if _, err := s.LockServer(ctx); err != nil {
			return err
		}
		fmt.Println("locked")
		io.Copy(io.Discard, os.Stdin)
		return nil
	},
	// Says what Open says.
	"open": func(ctx context.Context, dir string) error {
		s, err := Open(ctx, dir)
		if e, ok := errors.AsType[*fault.Error](err); ok {
			fmt.Printf("%v | %s\n", e.Err, e.Hint)
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println("opened")
		return s.Close()
	},
}

// process is a running helper.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	ended bool
}

// start runs a helper, as user uid unless that is 0.
func start(t testing.TB, name, dir string, uid uint32) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if uid != 0 {
		binary = publicCopy(t, binary)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), helperVar+"="+name, dirVar+"="+dir)
	cmd.Stderr = os.Stderr
	if uid != 0 {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if !p.ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return p
}

// publicCopy is for another user: go test's folder is not for them.
func publicCopy(t testing.TB, binary string) string {
	t.Helper()
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(publicDir(t), "helper")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// publicDir is a new folder that everybody can reach and nobody else can write.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cubby-store-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// line returns the helper's next line, in words.
func (p *process) line() []string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the helper ended early: %v", p.out.Err())
	}
	return strings.Fields(p.out.Text())
}

// rest returns the remaining lines of a helper that ends well.
func (p *process) rest() [][]string {
	p.t.Helper()
	p.in.Close()
	var lines [][]string
	for p.out.Scan() {
		lines = append(lines, strings.Fields(p.out.Text()))
	}
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("helper: %v, %q", err, lines)
	}
	return lines
}

// kill ends the helper with SIGKILL and returns the lines that it still wrote.
func (p *process) kill() [][]string {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	var lines [][]string
	for p.out.Scan() {
		lines = append(lines, strings.Fields(p.out.Text()))
	}
	p.ended = true
	_ = p.cmd.Wait()
	return lines
}

// open opens a new store in dir, which ends with the test.
func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newStore is a store with a team.
func newStore(t testing.TB) (s *Store, team string) {
	t.Helper()
	s = open(t, filepath.Join(t.TempDir(), "data"))
	made, err := s.CreateTeam(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	return s, made.ID
}

var start2026 = time.Date(2026, 1, 1, 12, 0, 0, 123456000, time.UTC)

func testSandbox(team, id string) Sandbox {
	return Sandbox{
		ID: id, PublicID: "p" + id, Generation: 1, TeamID: team, TemplateID: "base", TemplateDigest: "sha256:1", Engine: "test", EngineBuild: "v1",
		State: "running", CPUs: 0.5, MemoryMB: 512, DiskMB: 1024, PIDs: 256, Memories: 1, Files: 1,
		Metadata: map[string]string{"user": "ünal <1>", "": "\x00\""}, Settings: json.RawMessage(`{"secure":true}`), Sealed: []byte("sealed"),
		StartedAt: start2026, EndAt: start2026.Add(5 * time.Minute),
	}
}

// end records the end of a sandbox.
func end(ctx context.Context, s *Store, b Sandbox, at time.Time, reason string) error {
	b.EndedAt, b.EndReason = at, reason
	return s.PutSandbox(ctx, b)
}

// snapshot is every file below dir with mode and content.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if d.Type().IsRegular() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		all[path] = info.Mode().String() + " " + string(content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
