package cubby

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Bounds on answers, in bytes. What comes from a server may come from hostile
// code in a sandbox.
const (
	maxErrorBody = 64 << 10
	maxJSONBody  = 32 << 20
	maxMessage   = 4 << 10
)

const typeJSON = "application/json"

// How long the control plane may take to answer, where the caller's context has no
// deadline.
const (
	answerTimeout = 30 * time.Second
	// createTimeout is more than a Cubby lets a create wait for its turn and boot.
	createTimeout = 2 * time.Minute
	// memoryTimeout is for calls that may write a sandbox's memory to a disk, or read
	// it from there.
	memoryTimeout = 10 * time.Minute
)

// bounded is ctx with a bound, unless it has one already.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, &Error{Code: CodeUnavailable, Err: fmt.Errorf("the server has not answered within %v", d)})
}

// control sends a request to the control plane and decodes the answer into out
// (nil ignores it), which is waited for as long as ctx says, else answerTimeout. Its errors are *Error without an Op, or transport errors.
func (c *Client) control(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := bounded(ctx, answerTimeout)
	defer cancel()
	req, err := newRequest(ctx, method, c.api, path, query, in)
	if err != nil {
		return err
	}
	c.authorise(req)
	return c.exchange(req, out)
}

func (c *Client) authorise(req *http.Request) {
	if c.key != "" {
		req.Header.Set(protocol.HeaderAPIKey, c.key)
	}
}

// request makes a request to a port of the sandbox.
func (s *Sandbox) request(ctx context.Context, method string, port int, path string, query url.Values, in any) (*http.Request, error) {
	req, err := newRequest(ctx, method, s.base(port), path, query, in)
	if err != nil {
		return nil, err
	}
	s.route(req.Header, port)
	// Without this the transport would ask for gzip, which costs the sandbox
	// time and lets it send bombs.
	req.Header.Set("Accept-Encoding", "identity")
	if s.token != "" {
		req.Header.Set(protocol.HeaderAccessToken, s.token)
	}
	return req, nil
}

// route says in h which port of which sandbox a request is for, and that it may
// go there.
func (s *Sandbox) route(h http.Header, port int) {
	h.Set(protocol.HeaderSandboxID, s.id)
	h.Set(protocol.HeaderSandboxPort, strconv.Itoa(port))
	if s.traffic != "" {
		h.Set(protocol.HeaderTrafficToken, s.traffic)
	}
}

func newRequest(ctx context.Context, method string, base *url.URL, path string, query url.Values, in any) (*http.Request, error) {
	var body io.Reader
	switch v := in.(type) {
	case nil:
	case io.Reader:
		body = v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return nil, &Error{Code: CodeInvalidArgument, Err: err}
		}
		body = bytes.NewReader(b)
	}
	u := *base
	plain, err := url.PathUnescape(path) // path arrives escaped
	if err != nil {
		return nil, &Error{Code: CodeInvalidArgument, Err: err}
	}
	u.Path, u.RawPath = base.Path+plain, base.EscapedPath()+path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, &Error{Code: CodeInvalidArgument, Err: err}
	}
	req.Header.Set("User-Agent", "cubby-go")
	if body != nil {
		req.Header.Set("Content-Type", typeJSON)
	}
	return req, nil
}

// exchange sends req, which must be small on both ways.
func (c *Client) exchange(req *http.Request, out any) error {
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := readAnswer(req.Context(), resp.Body)
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &Error{Code: CodeInternal, Err: fmt.Errorf("malformed answer: %w", err)}
	}
	return nil
}

// send sends req and turns an answer of 300 or more into an *Error.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		// The *url.Error repeats method and URL, which say nothing to the user of
		// a private Cubby.
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		if cause := context.Cause(req.Context()); cause != nil {
			err = cause
		}
		return nil, fail("", CodeUnavailable, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, decodeError(resp)
}

// decodeError reads the error forms of the control plane, of the routing proxy,
// of envd, of the Connect protocol, and plain text.
func decodeError(resp *http.Response) *Error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a cut message is still one
	answer := func(text string) error { return &answered{resp.StatusCode, text} }
	e := &Error{Code: CodeFromHTTP(resp.StatusCode), RetryAfter: retryAfter(resp.Header)}
	var body struct {
		Code    json.RawMessage `json:"code"` // a number, or Connect's word
		Message string          `json:"message"`
		Hint    string          `json:"hint"`
	}
	if resp.StatusCode < http.StatusBadRequest {
		e.Err = answer(fmt.Sprintf("the server answered %s, which leads to %q", resp.Status, cut(resp.Header.Get("Location"), maxMessage)))
		e.Hint = "give the address that it leads to, if that is right: redirects are not followed, since the API key would follow them"
		return e
	}
	text := strings.TrimSpace(string(b))
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		text = "" // a page of something else
	}
	if json.Unmarshal(b, &body) == nil && body.Message != "" {
		text = body.Message
		e.Hint = cut(body.Hint, maxMessage)
		var word string
		if json.Unmarshal(body.Code, &word) == nil {
			if code, ok := codeFromConnect(word); ok {
				e.Code = code
			}
		}
	}
	if text == "" {
		text = "the server answered " + resp.Status
	}
	e.Err = answer(cut(text, maxMessage))
	return e
}

// retryAfter is how long a server asks to wait, in whole seconds; 0 if it does not say,
// and never more than an hour. It may say it as a date, too, which clocks can differ on.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

// cut shortens s to at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	return clip.Ellipsis(strings.ToValidUTF8(s, "\uFFFD"), n)
}

// readAnswer reads the body of an answer that must be small. Where the request's
// context has ended, its cause is the error.
func readAnswer(ctx context.Context, body io.Reader) ([]byte, error) {
	b, err := readBounded(body, maxJSONBody)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return b, err
}

// readBounded reads all of r, and fails when it is longer than limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, &Error{Code: CodeInternal, Err: fmt.Errorf("the answer is longer than %d bytes", limit)}
	}
	return b, nil
}
