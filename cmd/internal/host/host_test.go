package host

import (
	"bytes"
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// What needs a machine is tested through package embedded.

func TestTimeoutOf(t *testing.T) {
	seconds := func(n int) *int { return &n }
	for _, test := range []struct {
		name string
		in   *int
		want time.Duration
		err  any
	}{
		{"unset", nil, 5 * time.Minute, nil},
		{"a minute", seconds(60), time.Minute, nil},
		{"the longest", seconds(86400), 24 * time.Hour, nil},
		{"zero", seconds(0), 0, fault.InvalidArgument},
		{"negative", seconds(-1), 0, fault.InvalidArgument},
		{"too long", seconds(86401), 0, fault.InvalidArgument},
		{"overflows a duration", seconds(math.MaxInt), 0, fault.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := timeoutOf(test.in, 5*time.Minute)
			if got != test.want || !is(err, test.err) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestMergeLimits(t *testing.T) {
	limits, asked := mergeLimits(defaultLimits, nil)
	if limits != defaultLimits || len(asked) != 0 {
		t.Errorf("nothing asked: %+v %v", limits, asked)
	}
	limits, asked = mergeLimits(defaultLimits, &protocol.Limits{MemoryMB: 64, CPUs: 0.5})
	if limits.MemoryMB != 64 || limits.CPUs != 0.5 || limits.DiskMB != defaultLimits.DiskMB || !slices.Equal(asked, []string{"memory", "cpu"}) {
		t.Errorf("some asked: %+v %v", limits, asked)
	}
	for _, bad := range []protocol.Limits{{MemoryMB: -1}, {CPUs: math.NaN()}, {CPUs: math.Inf(1)}, {DiskMB: 1 << 30}, {PIDs: 1}} {
		if err := checkLimits(&bad); fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, good := range []*protocol.Limits{nil, {}, {MemoryMB: 16, CPUs: 0.01, DiskMB: 1, PIDs: 8}} {
		if err := checkLimits(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

func TestIDs(t *testing.T) {
	form := regexp.MustCompile(`^i[a-z0-9]{20}$`) // E2B's
	seen := map[string]bool{}
	for range 1000 {
		id := newID("i")
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

// TestTombstones: ended sandboxes are remembered, but not for ever.
func TestTombstones(t *testing.T) {
	h := New(Config{})
	for i := range maxTombstones + 10 {
		s := h.newSandbox(Record{Identity: Identity{ID: newID("i")}})
		h.insert(s)
		h.remove(s, time.Now(), "test")
		h.remove(s, time.Now(), "again")
		if _, err := h.Of(t.Context(), "", s.ID); reason(err) != "test" {
			t.Fatalf("sandbox %d: %v", i, err)
		}
	}
	if len(h.ended) != maxTombstones || len(h.order) != maxTombstones {
		t.Errorf("%d remembered", len(h.ended))
	}
}

// TestCloseWaitsForCreates: when the host is closed, a create that was under way, and
// took its time to give up, has left nothing either.
func TestCloseWaitsForCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gaveUp := false
		h := New(Config{MaxSandboxes: 10, Boots: 1, Engine: &hosttest.Engine{Boot: func(ctx context.Context, _ engine.Spec) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			gaveUp = true
			return context.Cause(ctx)
		}}})
		failed := make(chan error, 1)
		go func() {
			_, err := h.Create(context.Background(), CreateRequest{})
			failed <- err
		}()
		synctest.Wait()
		if err := h.Close(); err != nil || !gaveUp {
			t.Errorf("%v, and the create has given up: %v", err, gaveUp)
		}
		if err := <-failed; !errors.Is(err, ErrClosing) {
			t.Errorf("create: %v", err)
		}
	})
}

// TestCloseWaitsForEnds: when the host is closed, sandboxes that had begun to end by
// themselves have left nothing either.
func TestCloseWaitsForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		eng := &hosttest.Engine{Close: func(engine.Spec) error { time.Sleep(time.Minute); closed.Store(true); return nil }}
		h := New(Config{MaxSandboxes: 10, Boots: 1, Engine: eng})
		if _, err := h.Create(t.Context(), CreateRequest{}); err != nil {
			t.Fatal(err)
		}
		eng.Machines()[0].Die("its kernel panicked")
		synctest.Wait()
		if n := len(h.Live()); n != 0 || closed.Load() {
			t.Errorf("%d sandboxes in reach, its machine is closed: %v", n, closed.Load())
		}
		if err := h.Close(); err != nil || !closed.Load() {
			t.Errorf("%v, its machine is closed: %v", err, closed.Load())
		}
	})
}

// TestPrivateHost: one without records has a key of its own, and keeps nothing of what
// is paused.
func TestPrivateHost(t *testing.T) {
	eng, dir := &hosttest.Engine{}, t.TempDir()
	private := func() *Host {
		return New(Config{MaxSandboxes: 10, Boots: 1, Engine: eng, Images: &hosttest.Images{Dir: dir}})
	}
	h, other := private(), private()
	defer other.Close()
	if bytes.Equal(h.cfg.Key.Bytes(), other.cfg.Key.Bytes()) {
		t.Error("two have the same key")
	}
	s := mustCreate(t, h, 60)
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil || len(imageNames(t, h)) != 0 || s.State() != StateEnded {
		t.Errorf("%v; images %v; it is %s", err, imageNames(t, h), s.State())
	}
}
