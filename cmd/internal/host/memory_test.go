package host

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
)

// TestOverhead: a sandbox ends when its engine holds more for it than the engine says
// is safe, and not where the engine has no such bound.
func TestOverhead(t *testing.T) {
	for name, tt := range map[string]struct {
		usage engine.Usage
		ends  bool
	}{
		"below the bound": {engine.Usage{Overhead: 99, MaxOverhead: 100}, false},
		"at the bound":    {engine.Usage{Overhead: 100, MaxOverhead: 100}, false},
		"above the bound": {engine.Usage{Overhead: 101, MaxOverhead: 100}, true},
		"no bound":        {engine.Usage{Overhead: 1 << 40}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := &hosttest.Engine{}
				h := newHost(t, eng, nil)
				s, err := h.Create(t.Context(), CreateRequest{TeamID: "red"})
				if err != nil {
					t.Fatal(err)
				}
				eng.Machines()[0].SetUsage(tt.usage, 0)
				time.Sleep(2 * idlePoll)
				synctest.Wait()
				_, err = h.Of(t.Context(), "red", s.ID)
				if (reason(err) != "") != tt.ends || tt.ends && !strings.Contains(reason(err), "its kernel's own memory was exhausted") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
