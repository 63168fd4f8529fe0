// Package openai asks models of OpenAI, and of everything that speaks its Chat
// Completions: Ollama, vLLM, llama.cpp, LM Studio, OpenRouter and others.
//
//	model := openai.New(openai.FromEnv(openai.Config{Model: "gpt-5"}))
//	model := openai.New(openai.Config{Model: "qwen3", BaseURL: "http://localhost:11434/v1"})
package openai

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/completions"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

const provider = "openai"

// Config says which model is asked, and where. Only Model must be set. Nothing is
// read from the environment: [FromEnv] does that.
type Config struct {
	APIKey  string // may be empty where the endpoint wants none
	BaseURL string // with the version, such as http://localhost:11434/v1; "" is OpenAI's
	Model   string
	// HTTPClient is copied and follows no redirects; nil is a default one. Time is
	// bounded by the context alone, unless it has a Timeout.
	HTTPClient *http.Client
	Images     *bool // whether the model takes pictures; nil means yes
	Tools      *bool // whether it takes tools; nil means yes
	// MaxTokens bounds a reply whose request does not; 0 leaves it to the endpoint.
	// A bound is sent as max_completion_tokens to openai.com and Azure, whose newer
	// models insist on it, and as max_tokens to all others, many of which know
	// nothing else.
	MaxTokens int
	Header    map[string]string // sent with every request
}

// FromEnv fills in what c leaves empty: APIKey from OPENAI_API_KEY and BaseURL
// from OPENAI_BASE_URL. Spaces and line breaks around them do not count.
func FromEnv(c Config) Config {
	c.APIKey = cmp.Or(strings.TrimSpace(c.APIKey), strings.TrimSpace(os.Getenv("OPENAI_API_KEY")))
	c.BaseURL = cmp.Or(strings.TrimSpace(c.BaseURL), strings.TrimSpace(os.Getenv("OPENAI_BASE_URL")))
	return c
}

// Model is a model behind Chat Completions. It is safe for concurrent use.
type Model struct {
	config   Config
	info     agent.ModelInfo
	endpoint *endpoint.Endpoint
	client   *http.Client
	header   http.Header
	official bool // it is OpenAI, or Azure
}

var _ agent.Model = (*Model)(nil)

// New returns a model. It sends nothing: what is wrong with c, the first
// [Model.Generate] says.
func New(c Config) *Model {
	c.BaseURL = cmp.Or(c.BaseURL, "https://api.openai.com/v1")
	m := &Model{config: c, info: agent.ModelInfo{
		Provider: provider, Name: c.Model,
		Images: c.Images == nil || *c.Images, Tools: c.Tools == nil || *c.Tools,
	}}
	if u, err := url.Parse(c.BaseURL); err == nil {
		host := u.Hostname()
		m.official = host == "openai.com" || strings.HasSuffix(host, ".openai.com") || strings.HasSuffix(host, ".openai.azure.com")
	}
	m.endpoint = &endpoint.Endpoint{Provider: provider, BaseURL: c.BaseURL, KeyVar: "OPENAI_API_KEY", URLVar: "OPENAI_BASE_URL", Key: c.APIKey}
	m.client = endpoint.Client(c.HTTPClient)
	m.header = http.Header{}
	if c.APIKey != "" {
		m.header.Set("Authorization", "Bearer "+c.APIKey)
	}
	for k, v := range c.Header {
		m.header.Set(k, v)
		m.endpoint.Secrets = append(m.endpoint.Secrets, v)
	}
	return m
}

// Info says what the model is and takes.
func (m *Model) Info() agent.ModelInfo { return m.info }

// Generate asks for one reply; see [agent.Model]. A reply on the wire is bounded
// by 64 MiB, its contents by 16 MiB and 128 calls of tools.
func (m *Model) Generate(ctx context.Context, req agent.Request, stream func(agent.Delta)) (*agent.Reply, error) {
	if err := m.endpoint.Check(m.config.Model); err != nil {
		return nil, err
	}
	if m.config.APIKey == "" && m.official && len(m.config.Header) == 0 {
		return nil, m.endpoint.NoKey()
	}
	body, err := completions.Request(completions.Options{
		Model: m.config.Model, Images: m.info.Images, Tools: m.info.Tools, MaxTokens: m.config.MaxTokens, LegacyMaxTokens: !m.official,
	}, req)
	if err != nil {
		return nil, m.endpoint.BadRequest(err)
	}
	s, err := m.endpoint.Post(ctx, m.client, "chat/completions", m.header, body)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := completions.Reader{Endpoint: m.endpoint, Stream: stream}
	for {
		event, err := s.Next()
		if errors.Is(err, io.EOF) || err == nil && bytes.HasPrefix(event.Data, []byte("[DONE]")) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := r.Add(event.Data); err != nil {
			return nil, err
		}
	}
	reply := r.Reply()
	if reply == nil {
		return nil, m.endpoint.Cut(ctx)
	}
	return reply, nil
}
