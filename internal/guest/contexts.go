//go:build linux

package guest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	startTime   = 30 * time.Second // for a kernel to be ready
	maxContexts = 64
)

// codeContext is a kernel with its own state. Whoever holds turn runs a cell in
// it or changes its kernel.
type codeContext struct {
	protocol.Context
	shell string
	turn  chan struct{}

	// Guarded by turn.
	count int    // cells since the kernel was asked for
	ended string // how the last kernel ended, until a fresh one has said so

	mu     sync.Mutex // guards what follows
	proc   *kernelProcess
	cell   *cell
	groups []*processGroup // of cells whose processes die with the context
}

// contexts are the contexts of a guest, in the order of their creation.
type contexts struct {
	mu       sync.Mutex
	all      []*codeContext
	defaults map[string]*codeContext // by language
}

// normalise returns the language that name means and the language of its kernel.
func normalise(name string) (language, kernelLanguage string, err error) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "python", "py", "python3":
		return python, python, nil
	case "javascript", "js", "node":
		return javascript, javascript, nil
	case "typescript", "ts":
		return typescript, javascript, nil
	case "bash", "sh", "shell":
		return bash, bash, nil
	}
	return "", "", fmt.Errorf("unknown language %q: this sandbox runs python, javascript, typescript and bash", name)
}

// byDefault returns the default context of a kernel's language.
func (g *Guest) byDefault(kernelLanguage string) *codeContext {
	g.contexts.mu.Lock()
	defer g.contexts.mu.Unlock()
	if c := g.contexts.defaults[kernelLanguage]; c != nil {
		return c
	}
	c := g.newContext(kernelLanguage, g.workdir(), "")
	if g.contexts.defaults == nil {
		g.contexts.defaults = map[string]*codeContext{}
	}
	g.contexts.defaults[kernelLanguage] = c
	g.contexts.all = append(g.contexts.all, c)
	return c
}

func (g *Guest) newContext(language, cwd, shell string) *codeContext {
	return &codeContext{
		Context: protocol.Context{ID: strings.ToLower(rand.Text()), Language: language, Cwd: cwd},
		shell:   shell,
		turn:    make(chan struct{}, 1),
	}
}

func (g *Guest) contextByID(id string) *codeContext {
	g.contexts.mu.Lock()
	defer g.contexts.mu.Unlock()
	for _, c := range g.contexts.all {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// take waits for the context's turn; give gives it back.
func (c *codeContext) take(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *codeContext) give() { <-c.turn }

// process returns the running kernel, nil if there is none.
func (c *codeContext) process() *kernelProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		select {
		case <-c.proc.ended:
			return nil
		default:
		}
	}
	return c.proc
}

// errMissing is what an error wraps when the interpreter is not there.
var errMissing = errors.New("not installed")

// ensure returns the context's kernel and starts one if there is none. fresh is
// how the one before ended, if one did. The caller has the turn.
func (g *Guest) ensure(ctx context.Context, c *codeContext) (k *kernelProcess, fresh string, err error) {
	if k = c.process(); k != nil {
		return k, "", nil
	}
	c.mu.Lock()
	old := c.proc
	c.mu.Unlock()
	if old != nil && c.ended == "" {
		c.ended = describe(old.status) // it ended between two cells
	}
	k, err = g.launch(ctx, c)
	if err != nil {
		return nil, "", err
	}
	fresh, c.ended = c.ended, ""
	c.mu.Lock()
	c.proc = k
	c.mu.Unlock()
	return k, fresh, nil
}

// launch starts a kernel for c and waits until it is ready.
func (g *Guest) launch(ctx context.Context, c *codeContext) (*kernelProcess, error) {
	path := g.cfg.Interpreters[c.Language]
	if path == "" {
		what := g.cfg.Missing[c.Language]
		if what == "" {
			what = "install it where the sandbox's files come from"
		}
		return nil, fmt.Errorf("%s is %w: %s", c.Language, errMissing, what)
	}
	var command kernel.Command
	switch c.Language {
	case python:
		command = kernel.Python(path, g.cfg.KernelDir, c.shell == "ipython")
	case javascript:
		command = kernel.Node(path, g.cfg.KernelDir)
	case bash:
		command = kernel.Bash(path, g.cfg.KernelDir)
	}
	cwd := c.Cwd
	if st, err := os.Stat(cwd); err != nil || !st.IsDir() {
		cwd = g.cfg.Home // the code removed it
	}
	k, err := g.startKernel(command, cwd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	limit := time.NewTimer(startTime)
	defer limit.Stop()
	select {
	case <-k.ready:
		return k, nil
	case <-k.ended:
		err = fmt.Errorf("the %s kernel ended at once (%s)", c.Language, describe(k.status))
	case <-limit.C:
		err = fmt.Errorf("the %s kernel was not ready after %s", c.Language, startTime)
	case <-ctx.Done():
		err = ctx.Err()
	case <-g.ctx.Done():
		err = g.ctx.Err()
	}
	k.stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	if tail := strings.TrimSpace(string(k.tail)); tail != "" {
		err = fmt.Errorf("%w: %s", err, strings.ToValidUTF8(tail, "\uFFFD"))
	}
	return nil, err
}

// describe says how a process ended: "exit status 3", "killed by SIGKILL".
func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + signalName(ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// discard kills the context's kernel and everything that its cells started and
// that can still be told apart.
func (c *codeContext) discard() {
	c.mu.Lock()
	k, groups := c.proc, c.groups
	c.proc, c.groups = nil, nil
	c.mu.Unlock()
	for _, gr := range groups {
		gr.kill()
	}
	if k != nil {
		k.stop()
		<-k.ended
	}
}

func (g *Guest) handleContexts(w http.ResponseWriter, _ *http.Request) {
	g.byDefault(python)
	g.byDefault(javascript)
	list := []protocol.Context{}
	g.contexts.mu.Lock()
	for _, c := range g.contexts.all {
		list = append(list, c.Context)
	}
	g.contexts.mu.Unlock()
	writeJSON(w, http.StatusOK, list)
}

func (g *Guest) handleCreateContext(w http.ResponseWriter, r *http.Request) {
	var req protocol.CreateContextRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil && r.ContentLength != 0 {
		http.Error(w, "bad request: "+err.Error(), http.StatusBadRequest)
		return
	}
	_, lang, err := normalise(req.Language)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if req.Shell != "" && (req.Shell != "ipython" || lang != python) {
		http.Error(w, fmt.Sprintf("unknown shell %q for %s", req.Shell, lang), http.StatusBadRequest)
		return
	}
	cwd := g.workdir()
	if req.Cwd != "" {
		cwd = g.resolve(req.Cwd)
		if st, err := os.Stat(cwd); err != nil || !st.IsDir() {
			http.Error(w, fmt.Sprintf("cwd '%s' does not exist", cwd), http.StatusBadRequest)
			return
		}
	}
	g.byDefault(python) // they come first in the list
	g.byDefault(javascript)
	c := g.newContext(lang, cwd, req.Shell)
	_ = c.take(r.Context())
	_, _, err = g.ensure(r.Context(), c)
	c.give()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	g.contexts.mu.Lock()
	full := len(g.contexts.all) >= maxContexts
	if !full {
		g.contexts.all = append(g.contexts.all, c)
	}
	g.contexts.mu.Unlock()
	if full {
		c.discard()
		http.Error(w, fmt.Sprintf("a sandbox has at most %d contexts", maxContexts), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, c.Context)
}

func (g *Guest) handleRestartContext(w http.ResponseWriter, r *http.Request) {
	c := g.contextByID(r.PathValue("id"))
	if c == nil {
		http.Error(w, fmt.Sprintf("Context %s not found", r.PathValue("id")), http.StatusNotFound)
		return
	}
	c.discard() // a cell that runs ends with it
	if err := c.take(r.Context()); err != nil {
		return
	}
	c.discard()
	c.count, c.ended = 0, ""
	_, _, err := g.ensure(r.Context(), c)
	c.give()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, nil)
}

func (g *Guest) handleDeleteContext(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	g.contexts.mu.Lock()
	var c *codeContext
	for i, x := range g.contexts.all {
		if x.ID == id {
			c = x
			g.contexts.all = append(g.contexts.all[:i:i], g.contexts.all[i+1:]...)
			if g.contexts.defaults[x.Language] == x {
				delete(g.contexts.defaults, x.Language)
			}
			break
		}
	}
	g.contexts.mu.Unlock()
	if c == nil {
		http.Error(w, fmt.Sprintf("Context %s not found", id), http.StatusNotFound)
		return
	}
	c.discard()
	writeJSON(w, http.StatusOK, nil)
}
