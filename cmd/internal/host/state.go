package host

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// State is where a sandbox is in its life.
type State string

// The states. Others than StateEnded are of a sandbox that can still be used, or
// will be again.
const (
	StateBooting  State = "booting"  // its first machine starts
	StateRunning  State = "running"  // it has a machine and can be used
	StatePausing  State = "pausing"  // its machine is being written to an image, and not to be used
	StatePaused   State = "paused"   // it is an image, and nothing of it runs
	StateResuming State = "resuming" // a machine is made of an image
	StateEnded    State = "ended"    // nothing of it is left but its record
)

// transitions are all there are. From running to running is a new deadline; from
// nothing to ended is a sandbox whose first record failed, and may be there.
var transitions = map[State][]State{
	"":            {StateBooting, StateEnded},
	StateBooting:  {StateRunning, StateEnded},
	StateRunning:  {StateRunning, StatePausing, StateResuming, StateEnded},
	StatePausing:  {StatePaused, StateRunning, StateEnded},
	StatePaused:   {StateResuming, StateEnded},
	StateResuming: {StateRunning, StatePaused, StateEnded},
	StateEnded:    {},
}

// isFact reports whether a transition says what has happened already: an end, or
// that a pause or a resume failed and all is as it was. It is made also if it
// cannot be written, for the record that is there means the same to the next
// start of a server: see Recover.
func isFact(from, to State) bool {
	return to == StateEnded || from == StatePausing && to == StateRunning || from == StateResuming && to == StatePaused
}

// anyState is where a sandbox may be that is to end.
const anyState State = "*"

// become makes a transition, the only way there is: it checks it, applies change to
// a copy of the record, writes that, and only then publishes it. A false change
// makes it nothing. publish, which may be nil, is called with s.mu held, at the
// moment at which the new state becomes visible. An error means that nothing changed,
// except for facts (see isFact), which happen all the same; it wraps ErrNotFound once
// the sandbox is to end, which no other transition follows.
//
// ctx bounds nothing but the wait for transitions before it: a caller that gives up
// must not leave it open whether there is a record.
func (s *Sandbox) become(ctx context.Context, from, to State, change func(*Record) bool, publish func()) error {
	select {
	case s.recording <- struct{}{}: // also for a caller that has given up, if nobody is before it
	default:
		select {
		case s.recording <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-s.recording }()
	s.mu.Lock()
	next, ending := s.record, s.ending != nil
	s.mu.Unlock()
	if from == anyState {
		from = next.State
	}
	switch {
	case next.State == StateEnded, ending && to != StateEnded:
		return ErrNotFound
	case next.State != from, !slices.Contains(transitions[from], to):
		return wrongState(s.ID, next.State, to)
	}
	if next.State = to; change != nil && !change(&next) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := s.host.cfg.Recorder.Put(ctx, next)
	if err == nil && from == StateResuming && to == StateRunning {
		// Before it is published, and not before the record is safe: see Recover.
		err = s.host.retireImage(s.ID)
	}
	if err != nil {
		err = own(fmt.Errorf("record that sandbox %s is %s: %w", s.ID, to, err))
		if !isFact(from, to) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != nil && to != StateEnded {
		return ErrNotFound // the end that was decided meanwhile is written next
	}
	s.record = next
	if publish != nil {
		publish()
	}
	return err
}

// State returns where the sandbox is in its life.
func (s *Sandbox) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.State
}

// Record returns what is recorded of the sandbox.
func (s *Sandbox) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// micros is t as records and cursors of lists hold it.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
