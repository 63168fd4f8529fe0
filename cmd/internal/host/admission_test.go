package host

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestFull: no more than MaxSandboxes, and a place is free once nothing of its
// sandbox is left.
func TestFull(t *testing.T) {
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.MaxSandboxes = 2 })
	first := mustCreate(t, h, 60)
	mustCreate(t, h, 60)
	if _, err := h.Create(t.Context(), CreateRequest{}); fault.CodeOf(err) != fault.RateLimited || fault.In(err).RetryAfter < time.Second {
		t.Errorf("a third of two: %v", err)
	}
	if err := h.Ready(); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("ready: %v", err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(); err != nil {
		t.Error(err)
	}
	mustCreate(t, h, 60)
}

// TestBurst: creates wait for their turn to boot, and no more boot at a time than
// may.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		booting, most := 0, 0
		eng := &hosttest.Engine{Boot: func(context.Context, engine.Spec) error {
			mu.Lock()
			booting++
			most = max(most, booting)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			booting--
			mu.Unlock()
			return nil
		}}
		h := newHost(t, eng, func(c *Config) { c.Boots, c.QueueTime = 2, 10*time.Second })
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := h.Create(t.Context(), CreateRequest{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most != 2 || len(h.Live()) != 20 {
			t.Errorf("%d at a time, %d live", most, len(h.Live()))
		}
		for _, s := range h.Live() {
			if got := s.EndAt().Sub(s.StartedAt); got != MaxTimeout {
				t.Errorf("waiting took away from its time: %v", got)
			}
		}
	})
}

// TestQueueTime: who waits too long is told to come again, and leaves no trace.
func TestQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		eng := &hosttest.Engine{Boot: func(context.Context, engine.Spec) error { <-release; return nil }}
		h := newHost(t, eng, func(c *Config) { c.Boots, c.QueueTime, c.MaxSandboxes = 1, 3*time.Second, 2 })
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := h.Create(t.Context(), CreateRequest{}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		begun := time.Now()
		if _, err := h.Create(t.Context(), CreateRequest{}); fault.CodeOf(err) != fault.RateLimited || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Create(ctx, CreateRequest{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that gives up: %v", err)
		}
		close(release)
		wg.Wait()
		if _, err := h.Create(t.Context(), CreateRequest{}); err != nil {
			t.Errorf("their places are gone: %v", err)
		}
	})
}

// TestCloseGivesUp: a host that closes waits neither for those that queue nor for
// those that boot, and makes nothing more.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &hosttest.Engine{Boot: func(ctx context.Context, _ engine.Spec) error { <-ctx.Done(); return context.Cause(ctx) }}
		h := New(Config{Engine: eng, Boots: 1, MaxSandboxes: 5})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := h.Create(t.Context(), CreateRequest{}); !errors.Is(err, ErrClosing) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if took := time.Since(begun); took != 0 {
			t.Errorf("closing took %v", took)
		}
		if _, err := h.Create(t.Context(), CreateRequest{}); !errors.Is(err, ErrClosing) {
			t.Errorf("after: %v", err)
		}
		if err := h.Ready(); !errors.Is(err, ErrClosing) {
			t.Errorf("ready: %v", err)
		}
	})
}

// TestReadyAgain: a failed create makes the host unfit for a while only.
func TestReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		h := newHost(t, &hosttest.Engine{Boot: func(context.Context, engine.Spec) error { return broken }}, nil)
		if _, err := h.Create(t.Context(), CreateRequest{}); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if err := h.Ready(); !errors.Is(err, broken) {
			t.Errorf("just after: %v", err)
		}
		time.Sleep(failedFor)
		if err := h.Ready(); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}

func TestDefaultMaxSandboxes(t *testing.T) {
	for memory, want := range map[int64]int{0: 64, 64 << 20: 4, 1 << 30: 32, 16 << 30: 512, 1 << 40: 4096} {
		if got := defaultMaxSandboxes(memory); got != want {
			t.Errorf("%d MiB: %d, want %d", memory>>20, got, want)
		}
	}
	if machineMemory() <= 0 {
		t.Error("this machine's memory cannot be told")
	}
	if n, known := availableMemory(); !known || n <= 0 {
		t.Errorf("this machine's free memory cannot be told: %d", n)
	}
}
