// Package openaisdk is a model behind a client of OpenAI's own SDK, for what only
// the SDK knows how to reach, such as Azure with its identities:
//
//	client := openai.NewClient(azure.WithEndpoint(url, version), azure.WithTokenCredential(credential))
//	model := openaisdk.New(client, openaisdk.Config{Model: "my-deployment"})
//
// Everything else is better asked with package agent/openai, which needs no SDK and
// bears with servers that only resemble OpenAI's: to the SDK a chunk of a reply
// that says "error": null is an error.
package openaisdk

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/completions"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

const provider = "openai"

// Config says which model is asked. Only Model must be set.
type Config struct {
	Model  string
	Images *bool // whether the model takes pictures; nil means yes
	Tools  *bool // whether it takes tools; nil means yes
	// MaxTokens bounds a reply whose request does not; 0 leaves it to the endpoint.
	MaxTokens int
}

// Model is a model behind Chat Completions. It is safe for concurrent use.
type Model struct {
	client openai.Client
	config Config
}

var _ agent.Model = (*Model)(nil)

// New returns a model that the client asks. All but retries is as the client's
// options say, also whether redirects are followed: [agent.Retry] asks again.
func New(client openai.Client, c Config) *Model { return &Model{client, c} }

// Info says what the model is and takes.
func (m *Model) Info() agent.ModelInfo {
	c := m.config
	return agent.ModelInfo{Provider: provider, Name: c.Model, Images: c.Images == nil || *c.Images, Tools: c.Tools == nil || *c.Tools}
}

// Generate asks for one reply; see [agent.Model]. A reply on the wire is bounded
// by 64 MiB, an event of it by 32 MiB, its contents by 16 MiB and 128 calls of tools.
func (m *Model) Generate(ctx context.Context, req agent.Request, stream func(agent.Delta)) (*agent.Reply, error) {
	e := &endpoint.Endpoint{Provider: provider, KeyVar: "the client's key", URLVar: "the client's"}
	info := m.Info()
	if info.Name == "" {
		return nil, e.BadRequest(errors.New("no model is named"))
	}
	body, err := completions.Request(completions.Options{Model: info.Name, Images: info.Images,
		Tools: info.Tools, MaxTokens: m.config.MaxTokens}, req)
	if err != nil {
		return nil, e.BadRequest(err)
	}
	params := param.Override[openai.ChatCompletionNewParams](json.RawMessage(body))
	s := m.client.Chat.Completions.NewStreaming(ctx, params, option.WithMaxRetries(0),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			e.Hide(r.Header)
			return e.Middleware(r, next)
		}))
	defer s.Close()
	r := completions.Reader{Endpoint: e, Stream: stream}
	for s.Next() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := r.Add([]byte(s.Current().RawJSON())); err != nil {
			return nil, err
		}
	}
	if err := s.Err(); err != nil {
		var said *ssestream.StreamError
		if errors.As(err, &said) && ctx.Err() == nil {
			return nil, e.Said(said.Event.Data)
		}
		return nil, e.Error(ctx, err)
	}
	reply := r.Reply()
	if reply == nil {
		return nil, e.Cut(ctx)
	}
	return reply, nil
}
