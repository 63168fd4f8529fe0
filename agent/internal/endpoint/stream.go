package endpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/sse"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// Bounds of what is read of an answer, in bytes.
const (
	maxErrorBody = 64 << 10
	maxReplyBody = 64 << 20
	// maxEvent bounds an event of a stream, which is held whole. It is usually some
	// hundred bytes; a server that streams nothing sends a whole reply in one.
	maxEvent = 4 << 20
)

// Post sends a request, whose body is JSON, to a path below the base URL and
// returns the stream that answers it; it must be closed. The headers are added to
// those of every request, or take their place. The context bounds the stream, too.
func (e *Endpoint) Post(ctx context.Context, client *http.Client, path string, header http.Header, body []byte) (*Stream, error) {
	u, err := url.Parse(e.BaseURL)
	if err != nil {
		return nil, e.Error(ctx, err) // which Check has told of
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, e.Error(ctx, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "cubby/"+version.Version)
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := e.Middleware(req, client.Do)
	if err != nil {
		return nil, e.Error(ctx, err)
	}
	return &Stream{ctx, e, resp.Body, sse.NewReader(resp.Body, maxEvent)}, nil
}

// Stream is the answer to a request.
type Stream struct {
	ctx      context.Context
	endpoint *Endpoint
	body     io.Closer
	events   *sse.Reader
}

// Next returns the next event, or [io.EOF] after the last one. Its data is valid
// until the next call. Other errors are the context's or a [*agent.ModelError].
func (s *Stream) Next() (sse.Event, error) {
	event, err := s.events.Next()
	if s.ctx.Err() != nil {
		return event, s.ctx.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return event, s.endpoint.Error(s.ctx, err)
	}
	return event, err
}

// Close ends the request, whether or not all was read.
func (s *Stream) Close() error { return s.body.Close() }

// answered is an answer that is no reply, on its way through an SDK.
type answered struct{ *agent.ModelError }

// Unwrap returns the error for people.
func (a answered) Unwrap() error { return a.ModelError }

// broken is a body that broke off.
type broken struct{ error }

// Unwrap returns the reader's error.
func (b broken) Unwrap() error { return b.error }

// Middleware makes errors of answers that are no streams and bounds the others. It
// has the form that the SDKs want; [Endpoint.Error] makes of the errors what they
// are, also after an SDK has wrapped them.
func (e *Endpoint) Middleware(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	resp, err := next(r)
	if err != nil || resp == nil || resp.Body == nil {
		return resp, err
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		// A page of something in between is no stream, whatever its status. One
		// byte tells, for which nothing has to wait: a stream begins with it.
		buffered := bufio.NewReader(resp.Body)
		if first, err := buffered.Peek(1); err == nil && (first[0] == '<' || first[0] == '{') {
			defer resp.Body.Close()
			data, _ := io.ReadAll(io.LimitReader(buffered, maxErrorBody))
			return nil, answered{e.made(agent.KindInvalidResponse, resp.StatusCode, wireError{Message: "the answer is no stream: " + parseError(data).Message})}
		}
		resp.Body = &body{Closer: resp.Body, r: buffered, left: maxReplyBody}
		return resp, nil
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	said := parseError(data)
	said.Message = cmp.Or(said.Message, http.StatusText(resp.StatusCode))
	out := e.made(kindOf(resp.StatusCode, said), resp.StatusCode, said)
	if resp.StatusCode < 400 {
		out.Kind, out.Message = agent.KindInvalidResponse, "it redirects, which is not followed: the key goes nowhere else"
	}
	out.RetryAfter = retryAfter(resp.Header, time.Now())
	return nil, answered{out}
}

var errTooLarge = errors.New("the reply is larger than any model's")

// body is a bounded body whose errors are known for what they are.
type body struct {
	io.Closer
	r    io.Reader
	left int // bytes of the body that may still come
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, broken{errTooLarge}
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = broken{err}
	}
	return n, err
}

// Error makes an error of what a request or its stream failed with. The context's come as they are.
func (e *Endpoint) Error(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var known answered
	if errors.As(err, &known) {
		return known.ModelError
	}
	var cut broken
	if errors.As(err, &cut) {
		if errors.Is(cut, errTooLarge) {
			return e.Invalid("%v", errTooLarge)
		}
		out := e.made(agent.KindStreamCut, 0, wireError{Message: "the reply broke off: " + cut.Error()})
		out.Err = err
		return out
	}
	if errors.Is(err, sse.ErrTooLong) {
		return e.Invalid("the reply has an event of more than %d MiB, which no model sends", maxEvent>>20)
	}
	var network net.Error
	var failed *url.Error
	if errors.As(err, &network) || errors.As(err, &failed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		out := e.made(agent.KindUnreachable, 0, wireError{Message: err.Error()})
		if !errors.Is(err, context.DeadlineExceeded) { // an http.Client's own: not the caller's
			out.Err = err
		}
		out.Hint = "check the network, and the base URL (" + e.URLVar + ")"
		if e.local() {
			out.Hint = "is the model's server running at " + e.url() + "? (Ollama: ollama serve)"
		}
		return out
	}
	out := e.made(agent.KindInvalidResponse, 0, wireError{Message: err.Error()})
	out.Err = err
	return out
}

// Client is a copy of c (nil: the default one) that follows no redirects, which
// could lead the key elsewhere.
func Client(c *http.Client) *http.Client {
	own := http.Client{}
	if c != nil {
		own = *c
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
