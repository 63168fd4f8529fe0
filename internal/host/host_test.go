package host

import (
	"errors"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// What needs a machine is tested through package embedded.

func TestLifetime(t *testing.T) {
	seconds := func(n int) *int { return &n }
	for _, test := range []struct {
		name string
		in   *int
		want time.Duration
		err  error
	}{
		{"unset", nil, 5 * time.Minute, nil},
		{"a minute", seconds(60), time.Minute, nil},
		{"the longest", seconds(86400), 24 * time.Hour, nil},
		{"zero", seconds(0), 0, ErrInvalid},
		{"negative", seconds(-1), 0, ErrInvalid},
		{"too long", seconds(86401), 0, ErrInvalid},
		{"overflows a duration", seconds(math.MaxInt), 0, ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := lifetime(test.in, 5*time.Minute)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestMergeLimits(t *testing.T) {
	limits, asked, err := mergeLimits(nil)
	if err != nil || limits != defaultLimits || len(asked) != 0 {
		t.Errorf("nothing asked: %+v %v %v", limits, asked, err)
	}
	limits, asked, err = mergeLimits(&protocol.Limits{MemoryMB: 64, CPUs: 0.5})
	if err != nil || limits.MemoryMB != 64 || limits.CPUs != 0.5 || limits.DiskMB != defaultLimits.DiskMB ||
		!asked["memory"] || !asked["cpu"] || asked["disk"] {
		t.Errorf("some asked: %+v %v %v", limits, asked, err)
	}
	for _, bad := range []protocol.Limits{{MemoryMB: -1}, {CPUs: math.NaN()}, {CPUs: math.Inf(1)}, {DiskMB: 1 << 30}, {PIDs: 1}} {
		if _, _, err := mergeLimits(&bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
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
	for i := range tombstones + 10 {
		s := &Sandbox{ID: newID("i")}
		h.boxes[s.ID] = s
		if !h.bury(s, time.Now(), "test") || h.bury(s, time.Now(), "again") {
			t.Fatalf("sandbox %d", i)
		}
		var ended *EndedError
		if _, err := h.Of(t.Context(), "", s.ID); !errors.As(err, &ended) || !errors.Is(err, ErrNotFound) || ended.Reason != "test" {
			t.Fatalf("sandbox %d: %v", i, err)
		}
	}
	if len(h.ended) != tombstones || len(h.order) != tombstones {
		t.Errorf("%d remembered", len(h.ended))
	}
}
