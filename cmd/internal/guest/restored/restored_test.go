package restored

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// jumping is time that a test can move on, as a restore does.
type jumping struct {
	mu   sync.Mutex
	late time.Duration
}

func (j *jumping) now() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Now().Add(j.late)
}

func (j *jumping) by(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.late += d
}

func TestClock(t *testing.T) {
	for name, test := range map[string]struct {
		wait       time.Duration
		after, by  time.Duration // the jump
		took, more time.Duration // of waking time, at least and what may come to it
	}{
		"no jump":           {10 * time.Second, 0, 0, 10 * time.Second, 0},
		"short":             {30 * time.Millisecond, 0, 0, 30 * time.Millisecond, 0},
		"an hour on a disk": {10 * time.Second, 4 * time.Second, time.Hour, 9 * time.Second, time.Second},
		"a short stop":      {10 * time.Second, 4500 * time.Millisecond, 3 * time.Second, 7 * time.Second, 0},
		"the clock is set back, which no clock of ours sees": {10 * time.Second, 4 * time.Second, -time.Hour, 10 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &jumping{}
				m := newMachine(j.now)
				begin := time.Now()
				done, timer := m.After(test.wait)
				defer timer.Stop()
				time.Sleep(test.after)
				j.by(test.by)
				<-done
				if took := time.Since(begin); took < test.took || took > test.took+test.more {
					t.Errorf("fired after %v, want %v and at most %v more", took, test.took, test.more)
				}
			})
		})
	}
}

// TestStopped has a timer that is taken back, and a jump while nothing waits.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &jumping{}
		m := newMachine(j.now)
		m.AfterFunc(time.Second, func() { t.Error("it was stopped") }).Stop()
		time.Sleep(2 * time.Second)
		j.by(4 * time.Second) // less than the gap: it would count
		begin := time.Now()
		done, _ := m.After(3 * time.Second)
		<-done
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("fired after %v", took)
		}
	})
}
