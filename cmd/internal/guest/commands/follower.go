//go:build linux

package commands

import (
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

// follower is one stream of a command's events.
type follower struct {
	events chan *envd.ProcessEvent
	gone   chan struct{} // closed by who reads events, when it does no more
	slow   chan struct{} // closed when it held up others for too long
}

// follow adds a follower, which must leave.
func (c *command) follow() *follower {
	f := &follower{events: make(chan *envd.ProcessEvent, waiting), gone: make(chan struct{}), slow: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followers = append(slices.Clone(c.followers), f)
	return f
}

func (c *command) leave(f *follower) {
	close(f.gone)
	c.drop(f)
}

func (c *command) drop(f *follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followers = slices.DeleteFunc(slices.Clone(c.followers), func(x *follower) bool { return x == f })
}

func (c *command) following() []*follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.followers
}

// tell gives e to all followers, and waits until each of them has room for it.
func (c *command) tell(e *envd.ProcessEvent) {
	for _, f := range c.following() {
		select {
		case f.events <- e:
			continue
		case <-f.gone:
			continue
		default:
		}
		c.insist(f, e)
	}
}

// insist waits until f takes e, or is gone, or others have waited for too long.
func (c *command) insist(f *follower, e *envd.ProcessEvent) {
	t := time.NewTicker(c.patience)
	defer t.Stop()
	for {
		select {
		case f.events <- e:
			return
		case <-f.gone:
			return
		case <-c.stop:
			return
		case <-t.C:
			if c.leaveBehind(f) {
				return
			}
		}
	}
}

// leaveBehind drops f if there are others, and says whether it did: who is alone
// holds up nobody but the command.
func (c *command) leaveBehind(f *follower) bool {
	if len(c.following()) < 2 {
		return false
	}
	c.drop(f)
	close(f.slow)
	return true
}
