//go:build linux

package commands

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

const (
	// maxCommands bounds the commands that have something open, and so does the
	// sandbox's number of processes: each is at least one, and costs the guest up
	// to three descriptors. One more waits for a place, for as long as queueTime.
	maxCommands = 1000
	queueTime   = 30 * time.Second
	// maxConfigs bounds, in bytes, the arguments and environments of all of them.
	maxConfigs = 64 << 20
	// remembered is how long, and maxRemembered of how many commands, the end is
	// kept for who asks late.
	remembered    = 30 * time.Second
	maxRemembered = 1000
)

var (
	errTooMany  = errors.New("too many commands are running: end some of them first")
	errTooLarge = errors.New("the commands that are running have too many arguments and variables: end some of them first")
	errClosing  = errors.New("the sandbox is ending")
)

// table are those that clients of envd have started.
type table struct {
	mu      sync.Mutex
	limit   int             // of places; 0 means maxCommands
	used    int             // places of those that have something open
	waiting []chan struct{} // for a place, the oldest first; closed when it is there
	live    map[uint32]*command
	past    []pastCommand // oldest first
	size    int           // bytes, of the configurations of those that have a place
	closed  bool
}

// pastCommand is the end of a command.
type pastCommand struct {
	pid uint32
	tag *string
	end *envd.ProcessEvent_EndEvent
	at  time.Time
}

// reserve makes room for a command with a configuration of size bytes, or waits
// for it. Without an error, free must follow.
func (cs *table) reserve(ctx context.Context, wg *sync.WaitGroup, size int) error {
	if err := cs.wait(ctx); err != nil {
		return err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var err error
	switch {
	case cs.closed:
		err = errClosing
	case cs.size+size > maxConfigs:
		err = errTooLarge
	default:
		cs.size += size
		wg.Add(1)
		return nil
	}
	cs.give()
	return err
}

// wait waits for a place, in the order of those who wait.
func (cs *table) wait(ctx context.Context) error {
	place := make(chan struct{})
	cs.mu.Lock()
	cs.waiting = append(cs.waiting, place)
	cs.admit()
	cs.mu.Unlock()
	t := time.NewTimer(queueTime)
	defer t.Stop()
	var err error
	select {
	case <-place:
		return nil
	case <-t.C:
		err = errTooMany
	case <-ctx.Done():
		err = ctx.Err()
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if i := slices.Index(cs.waiting, place); i >= 0 {
		cs.waiting = slices.Delete(cs.waiting, i, i+1)
	} else {
		cs.give() // it came meanwhile
	}
	return err
}

// admit gives places to those who wait, as far as there are some. The caller holds
// the lock.
func (cs *table) admit() {
	most := maxCommands
	if cs.limit > 0 {
		most = min(most, cs.limit)
	}
	for cs.used < most && len(cs.waiting) > 0 {
		close(cs.waiting[0])
		cs.waiting = cs.waiting[1:]
		cs.used++
	}
}

// give gives a place back. The caller holds the lock.
func (cs *table) give() {
	cs.used--
	cs.admit()
}

// busy reports whether a command runs. A terminal is no command: it may wait for its user
// for ever.
func (cs *table) busy() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.live {
		if c.pty == nil {
			return true
		}
	}
	return false
}

// bound changes how many places there are; 0 is as many as ever. Those that have
// one keep it.
func (cs *table) bound(n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.limit = n
	cs.admit()
}

func (cs *table) free(wg *sync.WaitGroup, size int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.give()
	cs.size -= size
	wg.Done()
}

// close refuses commands from now on.
func (cs *table) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
}

func (cs *table) add(c *command) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.live == nil {
		cs.live = map[uint32]*command{}
	}
	pid := c.info.GetPid()
	cs.live[pid] = c
	cs.past = slices.DeleteFunc(cs.past, func(p pastCommand) bool { return p.pid == pid }) // the number is taken again
}

// over moves c to the past.
func (cs *table) over(c *command) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.live[c.info.GetPid()] == c { // not a later one with its number
		delete(cs.live, c.info.GetPid())
		cs.past = append(cs.past, pastCommand{c.info.GetPid(), c.info.Tag, c.end, time.Now()})
	}
	cs.forget()
}

// restored lets what is remembered be so as if it had ended now.
func (cs *table) restored() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i := range cs.past {
		cs.past[i].at = time.Now()
	}
}

// forget drops what is not to be remembered any more. The caller holds the lock.
func (cs *table) forget() {
	since := time.Now().Add(-remembered)
	i := slices.IndexFunc(cs.past, func(p pastCommand) bool { return p.at.After(since) })
	if i < 0 {
		i = len(cs.past)
	}
	cs.past = slices.Delete(cs.past, 0, max(i, len(cs.past)-maxRemembered))
}

// find returns the command that s selects, nil if none runs. Of several with one
// tag, the latest in the order of their numbers.
func (cs *table) find(s *envd.ProcessSelector) *command {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, byTag := s.GetSelector().(*envd.ProcessSelector_Tag); !byTag {
		return cs.live[s.GetPid()]
	}
	var found *command
	for _, c := range cs.live {
		if c.info.Tag != nil && *c.info.Tag == s.GetTag() && (found == nil || c.info.GetPid() > found.info.GetPid()) {
			found = c
		}
	}
	return found
}

// findPast returns the latest end of what s selects.
func (cs *table) findPast(s *envd.ProcessSelector) (pastCommand, bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.forget()
	_, byTag := s.GetSelector().(*envd.ProcessSelector_Tag)
	for _, p := range slices.Backward(cs.past) {
		if byTag && p.tag != nil && *p.tag == s.GetTag() || !byTag && p.pid == s.GetPid() {
			return p, true
		}
	}
	return pastCommand{}, false
}

// list returns those that run, in the order of their numbers.
func (cs *table) list() []*envd.ProcessInfo {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var all []*envd.ProcessInfo
	for _, c := range cs.live {
		all = append(all, c.info)
	}
	slices.SortFunc(all, func(a, b *envd.ProcessInfo) int { return cmp.Compare(a.GetPid(), b.GetPid()) })
	return all
}
