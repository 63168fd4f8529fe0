package host

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Recovered says what a start found of the servers before it.
type Recovered struct {
	Ended  int // sandboxes that died with their server
	Paused int // those that are there again
}

// Recover takes up what earlier servers left in the records, before anything else is
// asked of the host. Machines die with their server: sandboxes that had one, or were
// to get their first, have ended. Paused ones are there again, as paused, and so are
// those that were being resumed, if their image is whole. That is so, too, where the
// record says that the sandbox runs: a resume is published only once its image has
// another name, so this one failed or was cut off, and the record of that is missing. Images of
// no sandbox are removed. An error means that something cannot be read or written; it is never
// taken for nothing being there, and the host must not be used.
func (h *Host) Recover(ctx context.Context) (Recovered, error) {
	var found Recovered
	records, err := h.cfg.Recorder.Live(ctx)
	if err != nil {
		return found, err
	}
	paused := map[string]bool{}
	for _, r := range records {
		if r.State == StateRunning && h.cfg.ImageDir != "" {
			if whole, err := h.hasImage(r.ID); err != nil {
				return found, fmt.Errorf("sandbox %s: %w", r.ID, err)
			} else if whole {
				r.State = StateResuming
			}
		}
		s := h.newSandbox(r)
		why, err := h.lost(r)
		if err == nil && why == "" && r.State == StateResuming {
			err = s.become(ctx, StateResuming, StatePaused, nil, nil)
		}
		switch {
		case err != nil:
			return found, fmt.Errorf("sandbox %s: %w", r.ID, err)
		case why != "":
			err := s.become(ctx, anyState, StateEnded, func(r *Record) bool {
				r.EndedAt, r.Reason, r.Env = micros(time.Now()), why, nil
				return true
			}, nil)
			if err != nil {
				return found, err
			}
			found.Ended++
		default:
			s.addLog(createdEntry(r.StartedAt, r.TemplateID))
			h.mu.Lock()
			h.insert(s)
			h.live.Add(1)
			h.mu.Unlock()
			paused[r.ID] = true
			found.Paused++
		}
	}
	if err := h.removeImagesBut(paused); err != nil {
		return found, fmt.Errorf("images of sandboxes that have ended: %w", err)
	}
	if len(records) > 0 {
		h.log.Info("sandboxes of an earlier server", "ended", found.Ended, "paused", found.Paused)
	}
	return found, nil
}

// lost says why a sandbox that a server before this one left has ended; empty if it
// has not.
func (h *Host) lost(r Record) (why string, err error) {
	const killed = "the server was killed; this was found at its next start" // when it was killed is not known
	switch r.State {
	case StateBooting, StateRunning, StatePausing:
		return killed, nil
	case StatePaused, StateResuming:
		whole, err := h.hasImage(r.ID)
		if err != nil || whole {
			return "", err
		}
		if r.State == StateResuming {
			return killed, nil
		}
		return "it was paused, and its image is missing", nil
	}
	return "", errors.New("a state that this version does not know: " + string(r.State))
}
