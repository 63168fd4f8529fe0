//go:build linux

package interpreter

import (
	"context"
	"errors"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/transformer"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// erase puts JavaScript in the place of q's code, which is TypeScript, and says whether
// the cell goes on; else it has said why not. It takes from the cell's timeout, 0 for
// none. The client gets signs of life while it waits.
//
// Where the program that does it is missing, Node is to erase the types: from 22.13 on
// it can, but for what is more than types.
func (ip *Interpreter) erase(ctx context.Context, run *cell, q *kernel.Request, timeout time.Duration) (goesOn bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ip.ctx, func() { cancel(nil) })()
	if timeout > 0 {
		defer time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) }).Stop()
	}
	var js string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		js, err = ip.typescript.Transform(ctx, q.Code)
	}()
	run.keepAlive(done)
	var bad *typescript.SyntaxError
	switch {
	case err == nil:
		q.Code = js
	case errors.Is(err, transformer.ErrMissing):
		q.TypeScript = true
	case errors.As(err, &bad):
		run.syntaxError(bad)
		return false
	case ctx.Err() != nil:
		why := int32(clientGone)
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			why = pastTime
		}
		run.stopped.Store(why)
		run.conclude("TypeScript", timeout)
		return false
	default:
		run.fail("TypeScriptError", err.Error())
		return false
	}
	return true
}

// startCompiler has TypeScript's compiler start while a kernel does, or while a cell waits
// for one: neither needs the other. It returns at once.
func (ip *Interpreter) startCompiler() {
	ip.wg.Go(func() {
		if ip.ctx.Err() == nil {
			ip.typescript.Start()
		}
	})
}

// keepAlive gives the client signs of life until done.
func (c *cell) keepAlive(done <-chan struct{}) {
	alive := time.NewTicker(keepaliveTime)
	defer alive.Stop()
	for {
		select {
		case <-done:
			return
		case <-alive.C:
			c.mu.Lock()
			c.emit(protocol.Event{Type: protocol.EventKeepalive})
			c.mu.Unlock()
		}
	}
}
