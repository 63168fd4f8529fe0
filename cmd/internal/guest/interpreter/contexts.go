//go:build linux

package interpreter

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/cellgroup"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernelproc"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// codeContext is a kernel with its own state. Whoever holds turn runs a cell in
// it or changes its kernel.
type codeContext struct {
	protocol.Context
	kernel string // the language of its kernel
	shell  string
	turn   chan struct{}

	// Guarded by turn.
	count  int    // cells since the kernel was asked for
	ended  string // how the last kernel ended, until a fresh one has said so
	strict bool   // its folder was asked for and has had no kernel yet: no other will do
	cuts   int    // cells whose clients were cut off, since the last one whose was not

	waiters atomic.Int32 // those who wait for turn

	mu     sync.Mutex // guards what follows
	gone   bool       // deleted: it gets no kernel any more
	proc   *kernelproc.Process
	cell   *cell
	groups []*cellgroup.Group // of cells whose processes die with the context
}

// contexts are the contexts of a guest, in the order of their creation.
type contexts struct {
	mu       sync.Mutex
	all      []*codeContext
	defaults map[string]*codeContext // by language
}

// byDefault returns the default context of a kernel's language.
func (ip *Interpreter) byDefault(kernelLanguage string) *codeContext {
	ip.contexts.mu.Lock()
	defer ip.contexts.mu.Unlock()
	if c := ip.contexts.defaults[kernelLanguage]; c != nil {
		return c
	}
	c := ip.newContext(kernelLanguage, kernelLanguage, ip.settings.Workdir(), "")
	if ip.contexts.defaults == nil {
		ip.contexts.defaults = map[string]*codeContext{}
	}
	ip.contexts.defaults[kernelLanguage] = c
	ip.contexts.all = append(ip.contexts.all, c)
	return c
}

func (ip *Interpreter) newContext(language, kernel, cwd, shell string) *codeContext {
	return &codeContext{
		Context: protocol.Context{ID: strings.ToLower(rand.Text()), Language: language, Cwd: cwd},
		kernel:  kernel,
		shell:   shell,
		turn:    make(chan struct{}, 1),
	}
}

func (ip *Interpreter) contextByID(id string) *codeContext {
	ip.contexts.mu.Lock()
	defer ip.contexts.mu.Unlock()
	for _, c := range ip.contexts.all {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// take waits for the context's turn; give gives it back.
func (c *codeContext) take(ctx context.Context) error {
	c.waiters.Add(1)
	defer c.waiters.Add(-1)
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryTake takes the turn if nobody has it.
func (c *codeContext) tryTake() bool {
	select {
	case c.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *codeContext) give() { <-c.turn }

// process returns the running kernel, nil if there is none.
func (c *codeContext) process() *kernelproc.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		select {
		case <-c.proc.Ended:
			return nil
		default:
		}
	}
	return c.proc
}

// discard kills the context's kernel and everything that its cells started and
// that can still be told apart.
func (c *codeContext) discard() {
	c.mu.Lock()
	k, run, groups := c.proc, c.cell, c.groups
	c.proc, c.groups = nil, nil
	c.mu.Unlock()
	for _, gr := range groups {
		gr.Kill()
	}
	if k == nil {
		return
	}
	k.Stop()
	if run != nil {
		run.hurry(shortUnread) // one that takes nothing would hold up the kernel's last words
	}
	<-k.Ended
}

// forget takes a context off the list and returns it, nil if it is not there.
func (ip *Interpreter) forget(id string) *codeContext {
	ip.contexts.mu.Lock()
	defer ip.contexts.mu.Unlock()
	i := slices.IndexFunc(ip.contexts.all, func(c *codeContext) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	c := ip.contexts.all[i]
	ip.contexts.all = slices.Delete(slices.Clone(ip.contexts.all), i, i+1)
	if ip.contexts.defaults[c.kernel] == c {
		delete(ip.contexts.defaults, c.kernel)
	}
	return c
}
