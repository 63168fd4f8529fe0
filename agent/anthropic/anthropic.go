// Package anthropic is a model behind Anthropic's Messages API.
//
//	model := anthropic.New(anthropic.FromEnv(anthropic.Config{Model: "claude-sonnet-4-5"}))
package anthropic

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
	"github.com/cubby-sandbox/cubby/agent/internal/messages"
)

const provider = "anthropic"

// apiVersion is the protocol's.
const apiVersion = "2023-06-01"

// Config says which model is asked, and where. Model and APIKey must be set.
// Nothing is read from the environment: [FromEnv] does that.
type Config struct {
	APIKey  string
	BaseURL string // without the version; "" is Anthropic's
	Model   string
	// HTTPClient is copied and follows no redirects; nil is a default one. Time is
	// bounded by the context alone, unless it has a Timeout.
	HTTPClient *http.Client
	// MaxTokens bounds a reply whose request does not; 0 is 8192: the protocol
	// wants a number.
	MaxTokens int
	// ThinkingTokens, at least 1024 as the provider wants it, lets the model think
	// that much before it replies, on top of the bound of the reply; 0 does not.
	ThinkingTokens int
	Header         map[string]string // sent with every request
}

// FromEnv fills in what c leaves empty: APIKey from ANTHROPIC_API_KEY and BaseURL
// from ANTHROPIC_BASE_URL. Spaces and line breaks around them do not count.
func FromEnv(c Config) Config {
	c.APIKey = cmp.Or(strings.TrimSpace(c.APIKey), strings.TrimSpace(os.Getenv("ANTHROPIC_API_KEY")))
	c.BaseURL = cmp.Or(strings.TrimSpace(c.BaseURL), strings.TrimSpace(os.Getenv("ANTHROPIC_BASE_URL")))
	return c
}

// Model is a model behind the Messages API. It is safe for concurrent use.
type Model struct {
	config   Config
	endpoint *endpoint.Endpoint
	client   *http.Client
	header   http.Header
	official bool // it is Anthropic
}

var _ agent.Model = (*Model)(nil)

// New returns a model. It sends nothing: what is wrong with c, the first
// [Model.Generate] says.
func New(c Config) *Model {
	c.BaseURL = cmp.Or(c.BaseURL, "https://api.anthropic.com")
	m := &Model{config: c}
	if u, err := url.Parse(c.BaseURL); err == nil {
		m.official = u.Hostname() == "anthropic.com" || strings.HasSuffix(u.Hostname(), ".anthropic.com")
	}
	m.endpoint = &endpoint.Endpoint{Provider: provider, BaseURL: c.BaseURL, KeyVar: "ANTHROPIC_API_KEY", URLVar: "ANTHROPIC_BASE_URL", Key: c.APIKey}
	m.client = endpoint.Client(c.HTTPClient)
	m.header = http.Header{"Anthropic-Version": {apiVersion}}
	if c.APIKey != "" {
		m.header.Set("X-Api-Key", c.APIKey)
	}
	for k, v := range c.Header {
		m.header.Set(k, v)
		m.endpoint.Secrets = append(m.endpoint.Secrets, v)
	}
	return m
}

// Info says what the model is and takes.
func (m *Model) Info() agent.ModelInfo {
	return agent.ModelInfo{Provider: provider, Name: m.config.Model, Images: true, Tools: true}
}

// Generate asks for one reply; see [agent.Model]. A reply on the wire is bounded
// by 64 MiB, its contents by 16 MiB.
func (m *Model) Generate(ctx context.Context, req agent.Request, stream func(agent.Delta)) (*agent.Reply, error) {
	if err := m.endpoint.Check(m.config.Model); err != nil {
		return nil, err
	}
	if m.config.APIKey == "" && len(m.config.Header) == 0 && m.official {
		return nil, m.endpoint.NoKey()
	}
	body, err := messages.Request(messages.Options{Model: m.config.Model, MaxTokens: m.config.MaxTokens,
		ThinkingTokens: m.config.ThinkingTokens}, req)
	if err != nil {
		return nil, m.endpoint.BadRequest(err)
	}
	s, err := m.endpoint.Post(ctx, m.client, "v1/messages", m.header, body)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := messages.Reader{Endpoint: m.endpoint, Stream: stream}
	for !r.Ended() { // the body may stay open after the last event
		event, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil, m.endpoint.Cut(ctx)
		}
		if err != nil {
			return nil, err
		}
		if err := r.Add(event.Data); err != nil {
			return nil, err
		}
	}
	return r.Reply(), nil
}
