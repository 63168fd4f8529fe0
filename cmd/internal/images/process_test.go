//go:build linux

package images

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// childVariable makes the test's binary a process that changes images until it dies: the
// folder, the key, the folder for plaintext if they are encrypted, and how many times it
// waits for the disk before it kills itself; below zero it does not.
const childVariable = "CUBBY_TEST_IMAGES"

func TestMain(m *testing.M) {
	if args := os.Getenv(childVariable); args != "" {
		if err := live(strings.Split(args, "\n")); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// config is a store's, as a child is told.
func config(dir, key, plain string) (Config, error) {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return Config{}, err
	}
	k, err := secret.Parse(raw)
	cfg := Config{Dir: dir, Key: k}
	if plain != "" {
		cfg.Cipher, cfg.Plain = k, plain
	}
	return cfg, err
}

// small is contents that are written fast.
func small(n int) contents {
	return contents{"state": bytes.Repeat([]byte{byte(n)}, 1000), "pages": bytes.Repeat([]byte{byte(n)}, chunkSize+1)}
}

// live makes, replaces, copies and removes images. It says what it is about to do, and then
// that it is done: a state is the contents of i1 and of its copy, 0 for none.
func live(args []string) error {
	cfg, err := config(args[0], args[1], args[2])
	if err != nil {
		return err
	}
	s, err := Open(cfg)
	if err != nil {
		return err
	}
	left, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	s.sync = func(f *os.File) error {
		if left == 0 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {}
		}
		left--
		if left < 0 {
			return f.Sync()
		}
		return nil
	}
	if err := s.RemoveBut(nil); err != nil {
		return err
	}
	fmt.Println("did 0 0")
	ctx := context.Background()
	for n := 1; ; n += 2 {
		for _, step := range []struct {
			state string
			do    func() error
		}{
			{fmt.Sprint(n, 0), func() error { _, err := s.Create(ctx, "i1", Options{About: n}, small(n).write); return err }},
			{fmt.Sprint(n, n), func() error { _, err := s.Copy("i1", "i2", n); return err }},
			{fmt.Sprint(n+1, n), func() error { _, err := s.Create(ctx, "i1", Options{About: n + 1}, small(n+1).write); return err }},
			{fmt.Sprint(0, n), func() error { return s.Retire("i1") }},
			{fmt.Sprint(0, n), func() error { return s.Remove("i1") }},
			{fmt.Sprint(0, 0), func() error { _, err := s.SetApart("i2", errors.New("why")); return err }},
		} {
			fmt.Println("doing", step.state)
			if err := step.do(); err != nil {
				return err
			}
			fmt.Println("did", step.state)
		}
	}
}

// TestKilled: whenever a process is killed, the next one finds what it last said that it
// did, or what it was doing, whole; and nothing else on disk.
func TestKilled(t *testing.T) {
	for _, plain := range []string{"", tmpfs(t, 0)} {
		name := map[bool]string{true: "plain", false: "encrypted"}[plain == ""]
		t.Run(name, func(t *testing.T) {
			t.Run("at each step", func(t *testing.T) {
				for step := range 45 {
					killed(t, plain, step, time.Minute)
				}
			})
			t.Run("at any time", func(t *testing.T) {
				for range 25 {
					killed(t, plain, -1, time.Duration(rand.IntN(150))*time.Millisecond)
				}
			})
		})
	}
}

// killed lets a process live for some steps and some time.
func killed(t *testing.T, plain string, steps int, d time.Duration) {
	t.Helper()
	dir, key := t.TempDir(), hex.EncodeToString(secret.New().Bytes())
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join([]string{dir, key, plain, strconv.Itoa(steps)}, "\n"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	aparts := -1 // how many images were set apart; the first "0 0" is the beginning
	may := map[string]bool{"0 0": true}
	last, doing := "0 0", ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, state, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "doing":
			may, doing = map[string]bool{last: true, state: true}, state
		case "did":
			if state == "0 0" && last == "0 0" {
				kill.Reset(d) // it lives
			}
			last, may = state, map[string]bool{state: true}
			if state == "0 0" {
				aparts++
			}
		default:
			t.Fatal(lines.Text())
		}
	}
	_ = cmd.Wait() // it was killed

	cfg, err := config(dir, key, plain)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	var found []string
	for _, id := range []string{"i1", "i2"} {
		n := 0
		if _, err := s.Describe(id, &n); err != nil && !errors.Is(err, ErrNotExist) {
			t.Errorf("%d steps, %s: %v", steps, id, err)
		} else if err == nil {
			err := s.Use(t.Context(), id, small(n).check)
			// A process that was killed while it set an image apart may leave the manifest.
			var corrupt *CorruptError
			if id == "i2" && len(may) == 2 && may["0 0"] && errors.As(err, &corrupt) {
				if _, err := s.SetApart(id, err); err != nil {
					t.Error(err)
				}
				n, err = 0, nil
			}
			if err != nil {
				t.Errorf("%d steps, %s: %v", steps, id, err)
			}
		}
		found = append(found, strconv.Itoa(n))
	}
	if state := strings.Join(found, " "); !may[state] {
		t.Errorf("%d steps: %s, not one of %v", steps, state, may)
	}
	if len(may) == 2 && doing == "0 0" && found[1] == "0" {
		aparts++
	}
	apart, err := s.ListApart()
	if err != nil {
		t.Error(err)
	}
	for _, a := range apart {
		if a.Disk > chunkSize {
			aparts--
		}
	}
	if aparts > 0 {
		t.Errorf("%d steps: %d images that were set apart are lost", steps, aparts)
	}
	if err := s.RemoveBut(nil); err != nil {
		t.Error(err)
	}
	for _, name := range names(t, dir) {
		if name != apartName {
			t.Errorf("%d steps: %s is left", steps, name)
		}
	}
	if plain != "" && len(names(t, plain)) > 0 {
		t.Errorf("%d steps: plaintext is left: %v", steps, names(t, plain))
	}
}
