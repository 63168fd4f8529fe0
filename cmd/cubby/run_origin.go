package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/ownerconfig"
	"github.com/cubby-sandbox/cubby/embedded"
)

// serverValue is the flag --server[=URL].
type serverValue struct {
	used bool
	opts ownerconfig.Options
}

// Type is a switch's, for it may stand alone.
func (s *serverValue) Type() string   { return "bool" }
func (s *serverValue) String() string { return s.opts.URL }

func (s *serverValue) Set(text string) error {
	switch text {
	case "":
		return errors.New("nothing is given")
	case "true":
		s.used, s.opts.URL = true, ""
	case "false":
		s.used, s.opts.URL = false, ""
	default:
		s.used, s.opts.URL = true, text
	}
	return nil
}

// isURL reports an argument that was meant as the value of --server.
func isURL(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}

// origin is where the sandbox of a run comes from.
type origin interface {
	// obtain returns a sandbox that lives at least so long, and what lets go of it
	// when the run has ended with an error or nil.
	obtain(ctx context.Context, life time.Duration, opts ...cubby.CreateOption) (sbx *cubby.Sandbox, release func(ran error) error, err error)
	// explain adds to an error what its user can do about where the sandbox is.
	explain(err error) error
	// slow says what to do where a start takes too long.
	slow() string
}

// elsewhere says whether the sandbox is a server's.
func (f *runFlags) elsewhere() bool { return f.server.used || f.sandbox != "" }

// origin checks the flags that say where to run, and those that make no sense
// there.
func (f *runFlags) origin(open opener, changed func(string) bool, tell func(error)) (origin, error) {
	if !f.elsewhere() {
		if changed("sandbox") {
			return nil, usagef("--sandbox: nothing is given")
		}
		if f.server.opts.PlainHTTP {
			return nil, usagef("--plain-http is about a server: it goes with --server")
		}
		return private{open, embedded.Config{
			Python: f.python, Node: f.node, Engine: f.engine, Reach: f.owner.Reach, HostPorts: f.owner.HostPorts,
			IndexEnv: f.owner.IndexEnv,
		}}, nil
	}
	for _, flag := range []string{"python", "node", "engine"} {
		if changed(flag) {
			return nil, usagef("--%s: a server decides that for all its sandboxes, when it starts", flag)
		}
	}
	if flag := f.owner.Given(changed); flag != "" {
		return nil, usagef("--%s: what of a server's machine and network sandboxes may reach, its owner says: cubby serve --%s", flag, flag)
	}
	if f.sandbox != "" {
		if flag := f.net.Given(changed); flag != "" {
			return nil, usagef("--%s: the sandbox of --sandbox is there, and has its network", flag)
		}
		if flag := f.packages.Given(changed); flag != "" {
			return nil, usagef("--%s: the sandbox of --sandbox is there, and its packages are what was installed in it", flag)
		}
		for _, flag := range []string{"memory", "cpus", "disk", "pids"} {
			if changed(flag) {
				return nil, usagef("--%s: the sandbox of --sandbox is there, and has its limits", flag)
			}
		}
	}
	r, err := openRemote(f.server.opts)
	if err != nil {
		return nil, err
	}
	if f.sandbox != "" {
		return existing{r, f.sandbox}, nil
	}
	return fresh{r, tell}, nil
}

// private is a Cubby of the run's own, which ends with it.
type private struct {
	open opener
	cfg  embedded.Config
}

func (p private) obtain(ctx context.Context, life time.Duration, opts ...cubby.CreateOption) (*cubby.Sandbox, func(error) error, error) {
	client, closeClient, err := p.open(ctx, p.cfg)
	if err != nil {
		return nil, nil, err
	}
	sbx, err := client.Create(ctx, append(opts, cubby.WithTimeout(life))...)
	if err != nil {
		_ = closeClient() // the first error is the one to tell
		return nil, nil, err
	}
	return sbx, func(error) error { return closeClient() }, nil
}

func (private) explain(err error) error { return err }

func (private) slow() string {
	return "the machine may be too busy: a longer --timeout gives the start more time, too; `cubby doctor` tells whether sandboxes start here at all"
}

// fresh is a new sandbox on a server, which is ended after the run.
type fresh struct {
	*remote
	tell func(error) // says what went wrong beside the run
}

// createGrace is how long a create may still answer when nobody waits for its
// sandbox any more: only the answer says which one to end. A create that is given
// up before it answers leaves nothing on the server.
const createGrace = 2 * time.Second

func (f fresh) obtain(ctx context.Context, life time.Duration, opts ...cubby.CreateOption) (*cubby.Sandbox, func(error) error, error) {
	createCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	if end, ok := ctx.Deadline(); ok {
		// The client's own bound must not come before the run's.
		var stop context.CancelFunc
		createCtx, stop = context.WithDeadline(createCtx, end.Add(2*createGrace))
		defer stop()
	}
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(createGrace, func() { cancel(context.Cause(ctx)) })
	})()
	sbx, err := f.Create(createCtx, append(opts, cubby.WithTimeout(life))...)
	if err != nil {
		return nil, nil, err
	}
	release := func(ran error) error {
		// What the code did stands. A server that has gone has been told of.
		if err := sbx.Close(); err != nil && cubby.CodeOf(ran) != cubby.CodeUnavailable {
			f.tell(&cubby.Error{
				Op: "end the sandbox", Code: cubby.CodeOf(err), Err: err,
				Hint: fmt.Sprintf("`cubby kill %s` ends it; the server does after %v", sbx.ID(), life),
			})
		}
		return nil
	}
	if ctx.Err() != nil {
		_ = release(nil)
		return nil, nil, context.Cause(ctx)
	}
	return sbx, release, nil
}

func (fresh) slow() string {
	return "the server may be too busy: a longer --timeout gives the start more time, too; `cubby ls` shows what runs there"
}

// existing is a sandbox that was there before the run, and is after it.
type existing struct {
	*remote
	id string
}

func (e existing) obtain(ctx context.Context, life time.Duration, _ ...cubby.CreateOption) (*cubby.Sandbox, func(error) error, error) {
	var sbx *cubby.Sandbox
	_, err := e.withID(ctx, e.id, func(id string) (err error) {
		sbx, err = e.Connect(ctx, id, cubby.WithTimeout(life))
		return err
	})
	return sbx, func(error) error { return nil }, err
}

func (existing) slow() string { return "the server may be too busy" }
