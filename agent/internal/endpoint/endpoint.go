// Package endpoint is what the models of both providers have in common: errors of
// the way to an endpoint, and parts of requests.
package endpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/cubby-sandbox/cubby/agent"
)

// Bounds of what is read of an answer, in bytes.
const (
	maxErrorBody = 64 << 10
	maxReplyBody = 64 << 20
	// maxEvent bounds an event of a stream, which the SDKs hold whole, several
	// times over. It is usually some hundred bytes; a server that streams nothing
	// sends a whole reply in one.
	maxEvent = 4 << 20
)

// Endpoint is where a model is asked. It is read only.
type Endpoint struct {
	Provider string
	BaseURL  string
	KeyVar   string   // the variable that the key usually comes from
	URLVar   string   // likewise for BaseURL
	Key      string   // may be empty
	Secrets  []string // never told, besides Key, nor any long word of theirs
}

// url is BaseURL for people: without a password.
func (e *Endpoint) url() string {
	u, err := url.Parse(e.BaseURL)
	if err != nil || u.User == nil && strings.Contains(e.BaseURL, "@") {
		return "(not shown: it may hold a password)"
	}
	return e.clean(u.Redacted())
}

// Check reports what is wrong with a configuration before anything is sent.
func (e *Endpoint) Check(model string) error {
	u, err := url.Parse(e.BaseURL)
	switch {
	case model == "":
		return &agent.ModelError{Kind: agent.ErrInvalidRequest, Provider: e.Provider, Message: "no model is named", Hint: "name one"}
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return &agent.ModelError{
			Kind: agent.ErrUnreachable, Provider: e.Provider, Message: fmt.Sprintf("the base URL %q is none", e.url()),
			Hint: "set " + e.URLVar + " to one such as http://localhost:11434/v1",
		}
	case strings.ContainsFunc(e.Key, unicode.IsControl):
		return &agent.ModelError{
			Kind: agent.ErrUnauthorized, Provider: e.Provider, Message: "the key holds a line break or another control character",
			Hint: "set " + e.KeyVar + " to the key alone",
		}
	}
	return nil
}

// NoKey is the error of a provider that is asked without a key.
func (e *Endpoint) NoKey() error {
	return &agent.ModelError{Kind: agent.ErrUnauthorized, Provider: e.Provider, Message: "there is no key", Hint: "set " + e.KeyVar}
}

// Invalid is the error of an answer that is not the protocol.
func (e *Endpoint) Invalid(format string, args ...any) error {
	return e.made(agent.ErrInvalidResponse, 0, wireError{Message: fmt.Sprintf(format, args...)})
}

// Cut is the error of a stream that ended before its last event.
func (e *Endpoint) Cut(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &agent.ModelError{Kind: agent.ErrStreamCut, Provider: e.Provider, Message: "the reply ended in the middle"}
}

// Said is the error that an event of a stream tells of.
func (e *Endpoint) Said(data []byte) error {
	said := parseError(data)
	return e.made(kindOf(0, said), 0, said)
}

func (e *Endpoint) made(kind agent.ModelErrorKind, status int, said wireError) *agent.ModelError {
	out := &agent.ModelError{Kind: kind, Provider: e.Provider, Status: status, Message: e.clean(said.Message)}
	e.hint(out, said)
	return out
}

// answered is an answer that is no reply, on its way through the SDK.
type answered struct{ *agent.ModelError }

// Unwrap returns the error for people.
func (a answered) Unwrap() error { return a.ModelError }

// broken is a body that broke off.
type broken struct{ error }

// Unwrap returns the reader's error.
func (b broken) Unwrap() error { return b.error }

// Middleware makes errors of answers that are no streams, before the SDK reads
// them, and bounds the others.
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
			return nil, answered{e.made(agent.ErrInvalidResponse, resp.StatusCode, wireError{Message: "the answer is no stream: " + parseError(data).Message})}
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
		out.Kind, out.Message = agent.ErrInvalidResponse, "it redirects, which is not followed: the key goes nowhere else"
	}
	out.RetryAfter = retryAfter(resp.Header, time.Now())
	return nil, answered{out}
}

var (
	errTooLarge  = errors.New("the reply is larger than any model's")
	errLongEvent = fmt.Errorf("the reply has an event of more than %d MiB, which no model sends", maxEvent>>20)
)

// body is a bounded body whose errors are known for what they are.
type body struct {
	io.Closer
	r     io.Reader
	left  int // bytes of the body that may still come
	event int // bytes since the last empty line, which ends an event
	line  int // of these, since the last line break, without carriage returns
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, broken{errTooLarge}
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	b.count(p[:n])
	if b.event > maxEvent {
		return 0, broken{errLongEvent}
	}
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = broken{err}
	}
	return n, err
}

func (b *body) count(p []byte) {
	b.event += len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			b.line += len(p) - bytes.Count(p, []byte{'\r'})
			return
		}
		if b.line += i - bytes.Count(p[:i], []byte{'\r'}); b.line == 0 {
			b.event = len(p) - i - 1
		}
		b.line, p = 0, p[i+1:]
	}
}

// Error makes an error of what the SDK returned. The context's come as they are.
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
		for _, bound := range []error{errTooLarge, errLongEvent} {
			if errors.Is(cut, bound) {
				return e.Invalid("%v", bound)
			}
		}
		out := e.made(agent.ErrStreamCut, 0, wireError{Message: "the reply broke off: " + cut.Error()})
		out.Err = err
		return out
	}
	var network net.Error
	var failed *url.Error
	if errors.As(err, &network) || errors.As(err, &failed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		out := e.made(agent.ErrUnreachable, 0, wireError{Message: err.Error()})
		if !errors.Is(err, context.DeadlineExceeded) { // an http.Client's own: not the caller's
			out.Err = err
		}
		out.Hint = "check the network, and the base URL (" + e.URLVar + ")"
		if e.local() {
			out.Hint = "is the model's server running at " + e.url() + "? (Ollama: ollama serve)"
		}
		return out
	}
	out := e.made(agent.ErrInvalidResponse, 0, wireError{Message: err.Error()})
	out.Err = err
	return out
}

// local reports whether the endpoint is on this machine.
func (e *Endpoint) local() bool {
	u, err := url.Parse(e.BaseURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
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
