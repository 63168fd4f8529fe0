package e2bexec

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/internal/loss"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// maxConversations bounds how many execution ids are remembered.
const maxConversations = 4096

// conversationsDir holds their folders, below cubby.Home.
const conversationsDir = "conversations"

// conversation is the state of one execution id: a kernel for each language,
// which share a folder. The empty id has the sandbox's own kernels.
type conversation struct {
	id   string
	dir  string        // absolute
	turn chan struct{} // held by the execution that runs

	// Under conversations.mu.
	users int // who runs or waits
	last  time.Time

	// Of who has the turn, or of conversations.mu while there are no users.
	home          *sandbox // where its kernels and folder are
	memories      int      // of home, as the conversation knows it
	used          bool     // something ran or was put there
	ready         bool     // its folder is there
	kernelsSought bool     // kernels of an earlier executor were looked for
	kernels       map[string]*cubby.Context
	lossTold      map[string]bool // by language: the last result said that variables were lost
	counts        map[string]int  // by language: of the executions of the kernel, after the last
	memory        int             // see codeexec.Instance

	lost, lostFiles bool // its variables, its files, and nobody was told
}

func newConversation(id string) *conversation {
	return &conversation{
		id: id, dir: folderOf(id), turn: make(chan struct{}, 1), kernels: map[string]*cubby.Context{},
		lossTold: map[string]bool{}, counts: map[string]int{},
	}
}

// conversations are the conversations of an executor, by execution id.
type conversations struct {
	cfg *Config

	mu        sync.Mutex
	all       map[string]*conversation
	kernels   int        // of all conversations, those being made included
	forgotten loss.Names // ids that were in all once
	losses    int        // the largest memory count of conversations that were forgotten
}

func newConversations(cfg *Config) *conversations {
	c := &conversations{cfg: cfg, all: map[string]*conversation{}}
	if cfg.Since != nil {
		c.losses = cfg.Since.Memory
	}
	return c
}

// mostLosses returns the largest memory count that any conversation has had.
func (c *conversations) mostLosses() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.losses
	for _, v := range c.all {
		most = max(most, v.memory)
	}
	return most
}

// enter returns the conversation of id with its turn, for which it waits while another
// execution runs in it. The caller calls leave.
func (c *conversations) enter(ctx context.Context, h *holder, id string) (*conversation, error) {
	c.mu.Lock()
	v := c.all[id]
	if v == nil {
		if len(c.all) >= maxConversations {
			if old := c.oldest(func(*conversation) bool { return true }); old != nil {
				defer c.endKernels(h, c.orphanKernels(old)) // late: it must not hold the others up
				delete(c.all, old.id)
				c.forgotten.Add(old.id)
				c.losses = max(c.losses, old.memory)
			}
		}
		v = newConversation(id)
		v.memory = c.losses + 1
		v.lost, v.lostFiles = c.cfg.Since != nil, c.cfg.Since != nil
		if c.forgotten.Has(id) {
			v.lost, v.used = true, true
		}
		c.all[id] = v
	}
	v.users++
	c.mu.Unlock()
	select {
	case v.turn <- struct{}{}:
		return v, nil
	case <-ctx.Done():
		c.forgo(v)
		return nil, context.Cause(ctx)
	case <-h.ctx.Done():
		c.forgo(v)
		return nil, closedError()
	}
}

// folderOf is where a conversation's code runs.
func folderOf(id string) string {
	if id == "" {
		return cubby.Home
	}
	return path.Join(cubby.Home, conversationsDir, strings.TrimPrefix(workdir.PersistentName(id), "ws_"))
}

func (c *conversations) forgo(v *conversation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.users--
	v.last = time.Now()
}

func (c *conversations) leave(v *conversation) {
	<-v.turn
	c.forgo(v)
}

// oldest returns the conversation that was not used for longest, among those that nobody
// uses and that ok accepts; nil if there is none. The caller holds c.mu.
func (c *conversations) oldest(ok func(*conversation) bool) *conversation {
	var found *conversation
	for _, v := range c.all {
		if v.users == 0 && ok(v) && (found == nil || v.last.Before(found.last)) {
			found = v
		}
	}
	return found
}

// orphans are kernels that belong to no conversation any more.
type orphans struct {
	sandbox  *sandbox
	contexts []*cubby.Context
}

// orphanKernels takes a conversation's kernels away from it, for endKernels. The caller
// holds c.mu.
func (c *conversations) orphanKernels(v *conversation) orphans {
	t := orphans{sandbox: v.home}
	for language, k := range v.kernels {
		t.contexts = append(t.contexts, k)
		delete(v.kernels, language)
		delete(v.counts, language)
	}
	c.kernels -= len(t.contexts)
	v.lost = v.lost || len(t.contexts) > 0
	return t
}

// endKernels ends kernels in their sandbox. One that cannot be ended now ends with the
// sandbox.
func (c *conversations) endKernels(h *holder, t orphans) {
	if t.sandbox == nil || t.sandbox != h.current() && !t.sandbox.temporary {
		return
	}
	for _, k := range t.contexts {
		ctx, cancel := context.WithTimeout(h.ctx, renewTime)
		if err := t.sandbox.sbx.RemoveContext(ctx, k); err != nil && cubby.CodeOf(err) != cubby.CodeNotFound {
			t.sandbox.doubt(err)
			h.log.Warn("a kernel was not ended", "sandbox_id", t.sandbox.sbx.ID(), "err", err)
		}
		cancel()
	}
}

// enterSandbox brings v to b, the sandbox that the executor has now, and notes what v has
// lost if that is another one than before. The caller has v's turn.
func (c *conversations) enterSandbox(v *conversation, b *sandbox) {
	if memories := b.lostMemories(); v.home == b {
		if v.memories != memories {
			c.loseKernels(v)
			v.memories = memories
		}
		return
	}
	c.mu.Lock()
	c.orphanKernels(v) // they ended with their sandbox
	c.mu.Unlock()
	switch {
	case v.home == nil && v.used: // it was forgotten meanwhile, and nobody knows in which sandbox it was
		v.lostFiles = b.serial > 1
	case v.home == nil:
		// The sandbox that was to be attached to, where it may have been, is gone.
		v.lostFiles = v.lostFiles || c.cfg.ID != "" && b.owned
	default:
		v.lostFiles = v.lostFiles || v.used
	}
	v.lost = v.lost || v.lostFiles
	v.home, v.used, v.ready, v.kernelsSought, v.memories = b, false, false, false, b.lostMemories()
	clear(v.counts)
}

// loseKernels notes that the conversation's kernels have ended with their sandbox's
// memory. The caller has its turn.
func (c *conversations) loseKernels(v *conversation) {
	c.mu.Lock()
	c.orphanKernels(v)
	c.mu.Unlock()
	v.lost = v.lost || v.used
	clear(v.counts)
	clear(v.lossTold)
}

// kernel returns the conversation's kernel for a language and makes it if need
// be, for which that of another conversation may have to go. The caller has the
// turn.
func (c *conversations) kernel(ctx context.Context, v *conversation, language string) (*cubby.Context, error) {
	if k := v.kernels[language]; k != nil {
		return k, nil
	}
	b := v.home
	c.mu.Lock()
	for c.kernels >= c.cfg.MaxContexts {
		old := c.oldest(func(o *conversation) bool { return len(o.kernels) > 0 })
		if old == nil {
			c.mu.Unlock()
			return nil, &cubby.Error{
				Code: cubby.CodeRateLimited, Err: fmt.Errorf("%d kernels are in use", c.cfg.MaxContexts),
				Hint: "allow more kernels, or give conversations sandboxes of their own",
			}
		}
		t := c.orphanKernels(old)
		c.mu.Unlock()
		c.endKernels(b.h, t)
		c.mu.Lock()
	}
	c.kernels++
	c.mu.Unlock()
	k, err := b.sbx.CreateContext(ctx, language, cubby.WithCwd(v.dir))
	if err == nil && k.ID == "" {
		err = &cubby.Error{Code: cubby.CodeInternal, Err: errors.New("the sandbox made a kernel without an id")}
	}
	if err != nil {
		c.mu.Lock()
		c.kernels--
		c.mu.Unlock()
		return nil, err
	}
	v.kernels[language] = k
	return k, nil
}

// addKernels gives a conversation kernels that were found. The caller has its turn.
func (c *conversations) addKernels(v *conversation, found map[string]*cubby.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for language, k := range found {
		v.kernels[language] = k
		c.kernels++
	}
}

// forgetKernel forgets a kernel that is not there any more. The caller has the
// conversation's turn.
func (c *conversations) forgetKernel(v *conversation, language string) {
	if v.kernels[language] == nil {
		return
	}
	delete(v.kernels, language)
	delete(v.counts, language)
	c.mu.Lock()
	c.kernels--
	c.mu.Unlock()
}
