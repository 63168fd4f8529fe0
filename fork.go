package cubby

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// MaxForks is how many copies one [Sandbox.Fork] may make.
const MaxForks = 100

// ForkOption modifies [Sandbox.Fork].
type ForkOption interface{ applyFork(*protocol.ForkSandbox) }

// Fork makes n copies of the sandbox, 1 to [MaxForks]: each has its memory, so that
// variables are there and what runs goes on in each, its files, rules and labels, and an
// id and tokens of its own. A sandbox that runs stands still while it is written, and
// goes on with its connections; in the copies connections to the outside have ended, and
// random numbers differ. One that is paused stays so. Copies live for [WithTimeout], or
// five minutes.
//
// It returns the copies that were made, which the caller ends as others. Where they are
// fewer than n, also where there are none, there is an error beside them: its code is
// that of the first copy that could not be made, and its text has the reasons of all.
// [CodeRateLimited] and [CodeUnavailable] mean that the server has no room for more,
// [CodeUnimplemented] that it cannot copy, [CodeSandboxGone] that the sandbox has ended.
func (s *Sandbox) Fork(ctx context.Context, n int, opts ...ForkOption) ([]*Sandbox, error) {
	const op = "fork sandbox"
	if n < 1 || n > MaxForks {
		return nil, fail(op, CodeInvalidArgument, fmt.Errorf("%d copies: 1 to %d are possible", n, MaxForks))
	}
	req := protocol.ForkSandbox{Count: &n}
	WithTimeout(defaultTimeout).applyFork(&req)
	for _, o := range opts {
		o.applyFork(&req)
	}
	ctx, cancel := bounded(ctx, memoryTimeout)
	defer cancel()
	var answer []protocol.Forked
	if err := s.ofSandbox(ctx, op, http.MethodPost, "/sandboxes/"+s.id+"/fork", nil, &req, &answer); err != nil {
		return nil, err
	}
	copies, err := s.client.forked(n, answer)
	s.client.log.Info("sandbox forked", "sandbox_id", s.id, "copies", len(copies))
	if err != nil {
		return copies, fail(op, CodeInternal, err)
	}
	return copies, nil
}

// forked sorts what a server answers to a fork into copies and one error for those that
// are missing. Each reason is told once.
func (c *Client) forked(n int, answer []protocol.Forked) ([]*Sandbox, error) {
	var copies []*Sandbox
	var failed *Error
	var reasons []error
	told := map[string]bool{}
	for _, a := range answer {
		var err *Error
		switch {
		case a.Sandbox != nil:
			sbx, bad := c.adopt(*a.Sandbox)
			if bad == nil {
				copies = append(copies, sbx)
				continue
			}
			err = &Error{Code: CodeInternal, Err: bad}
		case a.Error != nil:
			text := cut(a.Error.Message, maxMessage)
			if text == "" {
				text = "the server does not say why"
			}
			err = &Error{Code: CodeFromHTTP(a.Error.Code), Err: &answered{a.Error.Code, text}, Hint: cut(a.Error.Hint, maxMessage)}
		default:
			err = &Error{Code: CodeInternal, Err: errors.New("the server answered neither a copy nor an error")}
		}
		if failed == nil {
			failed = err
		}
		if !told[err.Err.Error()] && len(told) < maxReasons {
			told[err.Err.Error()] = true
			reasons = append(reasons, err.Err)
		}
	}
	if len(copies) >= n {
		return copies, nil
	}
	if failed == nil {
		failed = &Error{Code: CodeInternal}
		reasons = []error{fmt.Errorf("the server answered %d copies", len(answer))}
	}
	failed.Err = fmt.Errorf("%d of %d copies could not be made: %w", n-len(copies), n, errors.Join(reasons...))
	return copies, failed
}

// maxReasons bounds how many different reasons an error tells.
const maxReasons = 10
