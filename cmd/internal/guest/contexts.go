//go:build linux

package guest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
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
	return "", "", errUnknown
}

// errUnknown says that a language is none of ours.
var errUnknown = errors.New("unknown")

// noLanguage says what is wrong with a language that does not run here, and which
// do.
func (g *Guest) noLanguage(name string, why error) string {
	var have []string
	for _, x := range []struct{ language, kernel string }{{python, python}, {javascript, javascript}, {typescript, javascript}, {bash, bash}} {
		if g.cfg.Interpreters[x.kernel] != "" {
			have = append(have, x.language)
		}
	}
	problem := why.Error()
	if errors.Is(why, errUnknown) {
		problem = fmt.Sprintf("unknown language %q", cut(name))
	}
	if len(have) == 0 {
		return problem + ": this sandbox runs none"
	}
	return problem + "; this sandbox runs " + strings.Join(have, ", ")
}

// writeNoKernel answers that there is no kernel for a call in that language. E2B's
// packages show the text of a 404 and of nothing else.
func (g *Guest) writeNoKernel(w http.ResponseWriter, language string, err error) {
	switch {
	case errors.Is(err, errMissing), errors.Is(err, errUnknown):
		writeText(w, http.StatusNotFound, g.noLanguage(language, err))
	case errors.Is(err, errRefused):
		writeText(w, http.StatusBadRequest, err.Error())
	case errors.As(err, new(deletedError)):
		writeText(w, http.StatusNotFound, err.Error())
	default:
		writeText(w, http.StatusInternalServerError, err.Error())
	}
}

// byDefault returns the default context of a kernel's language.
func (g *Guest) byDefault(kernelLanguage string) *codeContext {
	g.contexts.mu.Lock()
	defer g.contexts.mu.Unlock()
	if c := g.contexts.defaults[kernelLanguage]; c != nil {
		return c
	}
	c := g.newContext(kernelLanguage, kernelLanguage, g.workdir(), "")
	if g.contexts.defaults == nil {
		g.contexts.defaults = map[string]*codeContext{}
	}
	g.contexts.defaults[kernelLanguage] = c
	g.contexts.all = append(g.contexts.all, c)
	return c
}

func (g *Guest) newContext(language, kernel, cwd, shell string) *codeContext {
	return &codeContext{
		Context: protocol.Context{ID: strings.ToLower(rand.Text()), Language: language, Cwd: cwd},
		kernel:  kernel,
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

// deletedError says that there is no context of that id.
type deletedError string

func (id deletedError) Error() string { return fmt.Sprintf("Context %s not found", string(id)) }

// errMissing is what an error wraps when the interpreter is not there.
var errMissing = errors.New("not installed")

// errRefused is what an error wraps when the code's user may not enter the folder
// of a context.
var errRefused = errors.New("permission denied")

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
		c.ended = old.describeEnd(old.status) // it ended between two cells
	}
	k, err = g.launch(ctx, c)
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.proc = k
	}
	c.mu.Unlock()
	if gone {
		k.stop()
		<-k.ended
		return nil, "", deletedError(c.ID)
	}
	fresh, c.ended = c.ended, ""
	return k, fresh, nil
}

// launch starts a kernel for c and waits until it is ready.
func (g *Guest) launch(ctx context.Context, c *codeContext) (*kernelProcess, error) {
	path := g.cfg.Interpreters[c.kernel]
	if path == "" {
		what := g.cfg.Missing[c.kernel]
		if what == "" {
			what = "install it where the sandbox's files come from"
		}
		return nil, fmt.Errorf("%s is %w: %s", c.kernel, errMissing, what)
	}
	var command kernel.Command
	switch c.kernel {
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
	if errors.Is(err, fs.ErrPermission) && cwd != g.cfg.Home {
		if c.strict {
			return nil, fmt.Errorf("cwd '%s': %w", cwd, errRefused)
		}
		k, err = g.startKernel(command, g.cfg.Home) // the code has closed it
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	limit := time.NewTimer(startTime)
	defer limit.Stop()
	select {
	case <-k.ready:
		c.strict = false
		return k, nil
	case <-k.ended:
		err = fmt.Errorf("the %s kernel ended at once (%s)", c.kernel, describe(k.status))
	case <-limit.C:
		err = fmt.Errorf("the %s kernel was not ready after %s", c.kernel, startTime)
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

// describeEnd is describe, and says more of a kernel that was killed for its
// memory.
func (k *kernelProcess) describeEnd(ws syscall.WaitStatus) string {
	if k.oom.Load() {
		return "the sandbox was out of memory"
	}
	return describe(ws)
}

// discard kills the context's kernel and everything that its cells started and
// that can still be told apart.
func (c *codeContext) discard() {
	c.mu.Lock()
	k, run, groups := c.proc, c.cell, c.groups
	c.proc, c.groups = nil, nil
	c.mu.Unlock()
	for _, gr := range groups {
		gr.kill()
	}
	if k == nil {
		return
	}
	k.stop()
	if run != nil {
		run.hurry(shortUnread) // one that takes nothing would hold up the kernel's last words
	}
	<-k.ended
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
		status := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		writeText(w, status, "bad request: "+err.Error())
		return
	}
	lang, kernelLanguage, err := normalise(req.Language)
	if err != nil {
		g.writeNoKernel(w, req.Language, err)
		return
	}
	if req.Shell != "" && (req.Shell != "ipython" || lang != python) {
		writeText(w, http.StatusBadRequest, fmt.Sprintf("unknown shell %q for %s", req.Shell, lang))
		return
	}
	cwd := g.workdir()
	if req.Cwd != "" {
		cwd = g.resolve(req.Cwd)
		if st, err := os.Stat(cwd); err != nil || !st.IsDir() {
			writeText(w, http.StatusBadRequest, fmt.Sprintf("cwd '%s' does not exist", cwd))
			return
		}
	}
	g.byDefault(python) // they come first in the list
	g.byDefault(javascript)
	c := g.newContext(lang, kernelLanguage, cwd, req.Shell)
	c.strict = req.Cwd != ""
	_ = c.take(g.ctx)
	g.contexts.mu.Lock()
	full := len(g.contexts.all) >= maxContexts
	if !full {
		g.contexts.all = append(g.contexts.all, c)
	}
	g.contexts.mu.Unlock()
	if full {
		writeText(w, http.StatusTooManyRequests, fmt.Sprintf("a sandbox has at most %d contexts", maxContexts))
		return
	}
	_, _, err = g.ensure(r.Context(), c)
	c.give()
	if err != nil {
		g.forget(c.ID)
		g.writeNoKernel(w, lang, err)
		return
	}
	writeJSON(w, http.StatusOK, c.Context)
}

func (g *Guest) handleRestartContext(w http.ResponseWriter, r *http.Request) {
	c := g.contextByID(r.PathValue("id"))
	if c == nil {
		writeText(w, http.StatusNotFound, fmt.Sprintf("Context %s not found", r.PathValue("id")))
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
		g.writeNoKernel(w, c.Language, err)
		return
	}
	writeJSON(w, http.StatusOK, nil)
}

func (g *Guest) handleDeleteContext(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	c := g.forget(id)
	if c == nil {
		writeText(w, http.StatusNotFound, fmt.Sprintf("Context %s not found", id))
		return
	}
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.discard()
	writeJSON(w, http.StatusOK, nil)
}

// forget takes a context off the list and returns it, nil if it is not there.
func (g *Guest) forget(id string) *codeContext {
	g.contexts.mu.Lock()
	defer g.contexts.mu.Unlock()
	i := slices.IndexFunc(g.contexts.all, func(c *codeContext) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	c := g.contexts.all[i]
	g.contexts.all = slices.Delete(slices.Clone(g.contexts.all), i, i+1)
	if g.contexts.defaults[c.kernel] == c {
		delete(g.contexts.defaults, c.kernel)
	}
	return c
}
