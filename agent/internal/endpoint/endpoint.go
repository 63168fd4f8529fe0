// Package endpoint is what the models of both providers have in common: errors of
// the way to an endpoint, and parts of requests.
package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode"

	"github.com/cubby-sandbox/cubby/agent"
)

// Endpoint is where a model is asked. Only [Endpoint.Hide] changes it, which is called
// before it is shared.
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
		return &agent.ModelError{Kind: agent.KindInvalidRequest, Provider: e.Provider, Message: "no model is named", Hint: "name one"}
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return &agent.ModelError{
			Kind: agent.KindUnreachable, Provider: e.Provider, Message: fmt.Sprintf("the base URL %q is none", e.url()),
			Hint: "set " + e.URLVar + " to one such as http://localhost:11434/v1",
		}
	case strings.ContainsFunc(e.Key, unicode.IsControl):
		return &agent.ModelError{
			Kind: agent.KindUnauthorized, Provider: e.Provider, Message: "the key holds a line break or another control character",
			Hint: "set " + e.KeyVar + " to the key alone",
		}
	}
	return nil
}

// NoKey is the error of a provider that is asked without a key.
func (e *Endpoint) NoKey() error {
	return &agent.ModelError{Kind: agent.KindUnauthorized, Provider: e.Provider, Message: "there is no key", Hint: "set " + e.KeyVar}
}

// BadRequest is the error of a request that cannot be sent, for the caller's fault.
func (e *Endpoint) BadRequest(err error) error {
	return &agent.ModelError{Kind: agent.KindInvalidRequest, Provider: e.Provider, Err: err}
}

// Invalid is the error of an answer that is not the protocol.
func (e *Endpoint) Invalid(format string, args ...any) error {
	return e.made(agent.KindInvalidResponse, 0, wireError{Message: fmt.Sprintf(format, args...)})
}

// Cut is the error of a stream that ended before its last event.
func (e *Endpoint) Cut(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &agent.ModelError{Kind: agent.KindStreamCut, Provider: e.Provider, Message: "the reply ended in the middle"}
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

// local reports whether the endpoint is on this machine.
func (e *Endpoint) local() bool {
	u, err := url.Parse(e.BaseURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
