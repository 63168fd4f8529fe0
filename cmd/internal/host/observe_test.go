package host

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestSamples: a sample at once, then one each five seconds, of what the engine
// says.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &hosttest.Engine{}
		h := newHost(t, eng, nil)
		req := CreateRequest{}
		req.Limits = &protocol.Limits{CPUs: 2}
		s, err := h.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		eng.Machines()[0].SetUsage(engine.Usage{Memory: 7 << 20, Cache: 3, Disk: 5}, 5*time.Second)
		time.Sleep(sampleEvery)
		synctest.Wait()
		samples := s.Samples()
		if len(samples) != 2 {
			t.Fatalf("%d samples", len(samples))
		}
		got := samples[1]
		got.At = time.Time{}
		// Five seconds of processor in five seconds are half of two processors.
		if want := (Sample{CPUCount: 2, CPUPercent: 50, MemUsed: 7 << 20, MemTotal: 512 << 20,
			MemCache: 3, DiskUsed: 5, DiskTotal: 1 << 30}); got != want {
			t.Errorf("%+v", got)
		}
		if step := samples[1].At.Sub(samples[0].At); step != sampleEvery {
			t.Errorf("%v apart", step)
		}
	})
}

// TestBounds: neither log nor samples grow without end.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, &hosttest.Engine{}, nil)
		s := mustCreate(t, h, 7200)
		for i := range 2 * maxLogs {
			if err := s.SetTimeout(t.Context(), 2*time.Hour+time.Duration(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(sampleEvery * (maxSamples + 10))
		synctest.Wait()
		if n := len(s.Samples()); n != maxSamples {
			t.Errorf("%d samples", n)
		}
		if n := len(s.Logs()); n != maxLogs {
			t.Errorf("%d log entries", n)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		logs, err := h.Logs(t.Context(), "", s.ID)
		if err != nil || len(logs) != tombstoneLogs || logs[len(logs)-1].Message != "Sandbox ended: it was killed" {
			t.Errorf("%d entries after the end: %v", len(logs), err)
		}
	})
}

func TestRing(t *testing.T) {
	r := ring[int]{max: 3}
	for i, want := range [][]int{{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}} {
		r.add(i)
		if got := r.list(); !slices.Equal(got, want) {
			t.Errorf("after %d: %v", i, got)
		}
	}
}
