//go:build linux

package hostuser

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const holdUserVar = "CUBBY_TEST_HOLD_USER"

// holdUser makes the test binary a second server: it takes the one user of the
// range, says so and waits to be killed.
func init() {
	var r users
	if n, _ := fmt.Sscanf(os.Getenv(holdUserVar), "%d %d", &r.first, &r.count); n != 2 {
		return
	}
	u, err := r.take()
	fmt.Println(err == nil)
	io.Copy(io.Discard, os.Stdin)
	u.Release()
	os.Exit(0)
}

// TestHostUsers: no two machines have one host user, also those of two servers.
func TestHostUsers(t *testing.T) {
	if root, err := Initial(); err != nil || !root {
		t.Skip("only machines of root servers have users of their own")
	}
	// Far from the range of machines, so that no server that runs beside is met.
	next := uint32(0x72000000) + uint32(os.Getpid())*16
	some := func(count uint32) users {
		next += 16
		return users{next, count}
	}
	t.Run("one each", func(t *testing.T) {
		r := some(4)
		var taken []*User
		seen := map[uint32]bool{}
		for range 4 {
			u, err := r.take()
			if err != nil {
				t.Fatal(err)
			}
			if seen[u.id] || u.id < r.first || u.id >= r.first+r.count {
				t.Errorf("%d was handed out; before it %v", u.id, seen)
			}
			seen[u.id] = true
			taken = append(taken, u)
		}
		if u, err := r.take(); err == nil {
			t.Errorf("all are taken, and %d was handed out", u.id)
		}
		for _, u := range taken {
			if err := errors.Join(u.Release(), u.Release()); err != nil {
				t.Error(err)
			}
		}
		u, err := r.take()
		if err != nil {
			t.Fatal("after their release:", err)
		}
		u.Release()
	})
	t.Run("another server's, until it is killed", func(t *testing.T) {
		r := some(1)
		cmd := exec.Command("/proc/self/exe")
		cmd.Args[0] = "holder"
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", holdUserVar, r.first, r.count))
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "true\n" {
			t.Fatalf("the other server says %q, %v", line, err)
		}
		if u, err := r.take(); err == nil {
			u.Release()
			t.Error("the other server's user was handed out")
		}
		cmd.Process.Kill()
		io.Copy(io.Discard, out)
		cmd.Wait()
		u, err := r.take()
		if err != nil {
			t.Fatal("its server is gone:", err)
		}
		u.Release()
	})
	t.Run("a process that outlives its server", func(t *testing.T) {
		r := some(1)
		cmd := exec.Command("/bin/sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.first, Gid: r.first, NoSetGroups: true},
			Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if u, err := r.take(); err == nil {
			u.Release()
			t.Error("a user that something runs as was handed out")
		}
		cmd.Process.Kill()
		cmd.Wait()
		deadline := time.Now().Add(10 * time.Second)
		u, err := r.take()
		for ; err != nil && time.Now().Before(deadline); u, err = r.take() {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal("nothing runs as it any more:", err)
		}
		u.Release()
	})
}
