//go:build linux

package interpreter

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (ip *Interpreter) handleExecute(w http.ResponseWriter, r *http.Request) {
	if !ip.settings.Authorised(r) {
		reply.Text(w, http.StatusUnauthorized, reply.Unauthorised)
		return
	}
	req, status, err := readExecute(w, r)
	if err != nil {
		reply.Text(w, status, err.Error())
		return
	}
	timeout, err := headerNumber(r, protocol.HeaderTimeoutMS, 0)
	if err != nil {
		reply.Text(w, http.StatusBadRequest, err.Error())
		return
	}
	maxOutput, err := headerNumber(r, protocol.HeaderMaxOutput, defaultMaxOutput)
	if err != nil {
		reply.Text(w, http.StatusBadRequest, err.Error())
		return
	}
	var c *codeContext
	var language string
	if req.ContextID != "" {
		if c = ip.contextByID(req.ContextID); c == nil {
			reply.Text(w, http.StatusNotFound, fmt.Sprintf("Context %s not found", req.ContextID))
			return
		}
		language = c.Language
	} else {
		lang, kernelLanguage, err := normalise(req.Language)
		if err != nil {
			ip.writeNoKernel(w, req.Language, err)
			return
		}
		language, c = lang, ip.byDefault(kernelLanguage)
	}
	size := int64(len(req.Code))
	defer ip.waiting.Add(-size)
	if ip.waiting.Add(size) > maxWaiting {
		reply.Text(w, http.StatusTooManyRequests, fmt.Sprintf("calls with %d MiB of source are waiting already", maxWaiting>>20))
		return
	}
	run := &cell{
		rc: http.NewResponseController(w), w: w, maxOutput: maxOutput,
		done: make(chan struct{}), last: time.Now(), restores: ip.machine.Restores(),
	}
	defer run.close()
	q, status, err := ip.makeProgram(c, req)
	if err != nil {
		reply.Text(w, status, err.Error())
		return
	}
	if req.Stdin != nil && req.Stdin.ID != "" {
		if run.input, status, err = ip.openInput(req.Stdin.ID); err != nil {
			reply.Text(w, status, err.Error())
			return
		}
		defer ip.closeInput(run.input)
		q.Stdin = run.input.path
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	if language == settings.TypeScript {
		ip.startCompiler()
	}
	queued := !c.tryTake()
	if queued && !run.queue(r.Context(), c) {
		return
	}
	// Given back before the last line: a client that does not take that holds up
	// nobody.
	give := sync.OnceFunc(c.give)
	defer give()
	start := time.Now()
	k, ended, err := ip.ensure(r.Context(), c)
	if err != nil {
		if queued { // too late for a status
			run.fail("KernelError", err.Error())
			give()
			run.finish(start)
			return
		}
		ip.writeNoKernel(w, language, err)
		return
	}
	c.count++
	run.mu.Lock()
	run.emit(protocol.Event{Type: protocol.EventExecutions, ExecutionCount: c.count})
	if ended != "" {
		run.end.FreshKernel = true
		run.say(true, fmt.Sprintf("[cubby] the previous %s kernel ended (%s): this is a fresh one, earlier variables are gone\n", c.kernel, ended))
	}
	run.mu.Unlock()

	q.Code = req.Code
	limit := timeLimit{time.Duration(timeout) * time.Millisecond, time.Now()}
	if language == settings.TypeScript && !ip.erase(r.Context(), run, &q, limit.length) {
		give()
		run.finish(start)
		return
	}
	s := ip.settings.Load()
	env := maps.Clone(s.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.EnvVars)
	if k.Identity != s.Identity { // it was started before the sandbox became another
		k.Identity, q.Keep = s.Identity, s.Identity.Variables()
	}
	if n := ip.copies.Load(); k.Copies.Swap(n) != n {
		q.Anew = true
	}
	q.Op, q.ID, q.Env, q.Ack = "execute", int64(c.count), env, true
	q.Drain = r.Header.Get(protocol.HeaderDrain) == "1"
	ip.runCell(r, c, k, run, q, limit)
	give()
	run.finish(start)
}

// queue waits for the context's turn and says whether it came. The client gets
// the head of its answer at once and a sign of life while it waits; one that goes
// away leaves the queue.
func (c *cell) queue(ctx context.Context, turn *codeContext) bool {
	c.werr = c.rc.Flush()
	turn.waiters.Add(1)
	defer turn.waiters.Add(-1)
	alive := time.NewTicker(keepaliveTime)
	defer alive.Stop()
	for {
		select {
		case turn.turn <- struct{}{}:
			if ctx.Err() != nil { // both came at once: what nobody waits for does not run
				turn.give()
				return false
			}
			return true
		case <-ctx.Done():
			return false
		case <-alive.C:
			c.mu.Lock()
			c.emit(protocol.Event{Type: protocol.EventKeepalive})
			c.mu.Unlock()
		}
	}
}
