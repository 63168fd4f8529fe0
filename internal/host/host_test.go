package host

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// What needs a machine is tested through package embedded.

func TestTimeoutOf(t *testing.T) {
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
			got, err := timeoutOf(test.in, 5*time.Minute)
			if got != test.want || !errors.Is(err, test.err) {
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
		if err := checkLimits(&bad); !errors.Is(err, ErrInvalid) {
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
		var ended *EndedError
		if _, err := h.Of(t.Context(), "", s.ID); !errors.As(err, &ended) || !errors.Is(err, ErrNotFound) || ended.Reason != "test" {
			t.Fatalf("sandbox %d: %v", i, err)
		}
	}
	if len(h.ended) != maxTombstones || len(h.order) != maxTombstones {
		t.Errorf("%d remembered", len(h.ended))
	}
}
