//go:build linux

package guest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// descriptors are those that this process has open, by number.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[int]bool{}
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		if _, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // not the folder's own, which is closed
			open[n] = true
		}
	}
	return open
}

// withFree calls f while this process can open n more descriptors and no more.
func withFree(t *testing.T, n int, f func()) {
	t.Helper()
	open, limit := descriptors(t), 0
	for free := 0; ; limit++ {
		if open[limit] {
			continue
		}
		if free == n {
			break
		}
		free++
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(limit), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	f()
}

// TestStartsWithoutDescriptors starts what needs several of them while there are
// none, one, two, … until it starts: what could not start leaves none open.
func TestStartsWithoutDescriptors(t *testing.T) {
	b := newBox(t)
	a, err := b.g.account("")
	if err != nil {
		t.Fatal(err)
	}
	command := func(pty *envd.PTY) func() error {
		return func() error {
			c, err := b.g.newCommand(a, &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/true"}})
			if err != nil {
				return err
			}
			if err := b.g.spawn(c, a, pty, true); err != nil {
				return err
			}
			c.run(&b.g.children, func() {})
			return nil
		}
	}
	for name, start := range map[string]func() error{
		"kernel": func() error {
			k, err := b.g.startKernel(kernel.Bash("/bin/bash", b.g.cfg.KernelDir), b.home)
			if err == nil {
				k.stop()
				<-k.ended
			}
			return err
		},
		"command":  command(nil),
		"terminal": command(&envd.PTY{}),
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				before := len(descriptors(t))
				var err error
				withFree(t, n, func() { err = start() })
				if err == nil {
					return
				}
				if !errors.Is(err, syscall.EMFILE) && !strings.Contains(err.Error(), syscall.EMFILE.Error()) {
					t.Fatalf("with %d: %v", n, err)
				}
				if after := len(descriptors(t)); after != before {
					t.Fatalf("%d descriptors were open before a start with %d free ones, and %d after", before, n, after)
				}
			}
		})
	}
}

// deafClient is an answer that can be sent to nobody.
type deafClient struct {
	*httptest.ResponseRecorder
	flushed chan struct{}
}

func (d deafClient) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func (d deafClient) FlushError() error {
	select {
	case d.flushed <- struct{}{}:
	default:
	}
	return syscall.EPIPE
}

// leavingClient leaves when it gets a line.
type leavingClient struct {
	*httptest.ResponseRecorder
	leave func()
	over  atomic.Bool // the handler has returned
	late  atomic.Int32
}

func (l *leavingClient) Write(b []byte) (int, error) {
	l.leave()
	return len(b), nil
}

func (l *leavingClient) FlushError() error {
	if l.over.Load() {
		l.late.Add(1)
	}
	return nil
}

// TestNothingIsFlushedLate has clients leave the queue at a sign of life: what was
// to be flushed then is not, once the response belongs to the server again.
func TestNothingIsFlushedLate(t *testing.T) {
	defer func(d time.Duration) { keepaliveTime = d }(keepaliveTime)
	keepaliveTime = time.Millisecond
	b := newBox(t)
	c := b.g.byDefault(python)
	c.turn <- struct{}{}
	defer c.give()
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		client := &leavingClient{ResponseRecorder: httptest.NewRecorder(), leave: leave}
		b.g.CodeInterpreter().ServeHTTP(client, httptest.NewRequestWithContext(ctx, http.MethodPost, "/execute", strings.NewReader(`{"code": "1"}`)))
		client.over.Store(true)
		time.Sleep(3 * flushDelay) // nothing tells that nothing happens
		if client.late.Load() > 0 {
			t.Fatal("flushed after the handler's return")
		}
	}
}

// TestClientThatLeavesTheQueue has a client leave while its call waits for a
// context whose turn comes before the server knows.
func TestClientThatLeavesTheQueue(t *testing.T) {
	b := newBox(t, func(c *Config) { delete(c.Interpreters, python) })
	c := b.g.byDefault(python)
	c.turn <- struct{}{}
	client := deafClient{httptest.NewRecorder(), make(chan struct{}, 1)}
	over := make(chan any)
	go func() {
		defer func() { over <- recover() }()
		b.g.CodeInterpreter().ServeHTTP(client, httptest.NewRequest(http.MethodPost, "/execute", strings.NewReader(`{"code": "1"}`)))
	}()
	<-client.flushed // it is in the queue
	c.give()
	select {
	case trouble := <-over:
		if trouble != nil {
			t.Fatal(trouble)
		}
	case <-time.After(time.Minute):
		t.Fatal("the call does not end")
	}
}
