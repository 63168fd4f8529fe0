package cubby

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Context is a kernel with its own variables and working directory inside a
// sandbox.
type Context struct {
	ID       string
	Language string
	Cwd      string
}

// CreateContext makes a new kernel. An empty language means Python.
func (s *Sandbox) CreateContext(ctx context.Context, language string, opts ...ContextOption) (*Context, error) {
	const op = "create context"
	req := protocol.CreateContextRequest{Language: language}
	for _, o := range opts {
		o.applyContext(&req)
	}
	var answer protocol.Context
	if err := s.interpreter(ctx, http.MethodPost, "/contexts", &req, &answer); err != nil {
		return nil, fail(op, CodeUnavailable, err)
	}
	return &Context{ID: answer.ID, Language: answer.Language, Cwd: answer.Cwd}, nil
}

// Contexts lists the kernels in the order they were made, the default ones
// first.
func (s *Sandbox) Contexts(ctx context.Context) ([]*Context, error) {
	var answer []protocol.Context
	if err := s.interpreter(ctx, http.MethodGet, "/contexts", nil, &answer); err != nil {
		return nil, fail("list contexts", CodeUnavailable, err)
	}
	out := make([]*Context, len(answer))
	for i, a := range answer {
		out[i] = &Context{ID: a.ID, Language: a.Language, Cwd: a.Cwd}
	}
	return out, nil
}

// RestartContext replaces c's kernel by a fresh one: what ran in it is stopped
// and its variables are gone.
func (s *Sandbox) RestartContext(ctx context.Context, c *Context) error {
	path := "/contexts/" + url.PathEscape(c.ID) + "/restart"
	if err := s.interpreter(ctx, http.MethodPost, path, nil, nil); err != nil {
		return fail("restart context", CodeUnavailable, err)
	}
	return nil
}

// RemoveContext ends c's kernel and forgets c.
func (s *Sandbox) RemoveContext(ctx context.Context, c *Context) error {
	if err := s.interpreter(ctx, http.MethodDelete, "/contexts/"+url.PathEscape(c.ID), nil, nil); err != nil {
		return fail("remove context", CodeUnavailable, err)
	}
	return nil
}

func (s *Sandbox) interpreter(ctx context.Context, method, path string, in, out any) error {
	req, err := s.request(ctx, method, protocol.CodeInterpreterPort, path, nil, in)
	if err != nil {
		return err
	}
	return s.client.exchange(req, out)
}
