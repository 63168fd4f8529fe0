// Package anthropicsdk is a model behind a client of Anthropic's own SDK, for what
// only the SDK knows how to reach, such as Amazon Bedrock and Google Vertex AI:
//
//	client := anthropic.NewClient(bedrock.WithLoadDefaultConfig(ctx))
//	model := anthropicsdk.New(client, anthropicsdk.Config{Model: "anthropic.claude-sonnet-4-5-20250929-v1:0"})
//
// Everything else is better asked with package agent/anthropic, which needs no SDK.
package anthropicsdk

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
	"github.com/cubby-sandbox/cubby/agent/internal/messages"
)

const provider = "anthropic"

// Config says which model is asked. Only Model must be set.
type Config struct {
	Model string
	// MaxTokens bounds a reply whose request does not; 0 is 8192: the protocol
	// wants a number.
	MaxTokens int
	// ThinkingTokens, at least 1024 as the provider wants it, lets the model think
	// that much before it replies, on top of the bound of the reply; 0 does not.
	ThinkingTokens int
}

// Model is a model behind the Messages API. It is safe for concurrent use.
type Model struct {
	client anthropic.Client
	config Config
}

var _ agent.Model = (*Model)(nil)

// New returns a model that the client asks. All but retries is as the client's
// options say, also whether redirects are followed: [agent.Retry] asks again.
func New(client anthropic.Client, c Config) *Model { return &Model{client, c} }

// Info says what the model is and takes.
func (m *Model) Info() agent.ModelInfo {
	return agent.ModelInfo{Provider: provider, Name: m.config.Model, Images: true, Tools: true}
}

// Generate asks for one reply; see [agent.Model]. A reply on the wire is bounded
// by 64 MiB, an event of it by 32 MiB, its contents by 16 MiB.
func (m *Model) Generate(ctx context.Context, req agent.Request, stream func(agent.Delta)) (*agent.Reply, error) {
	e := &endpoint.Endpoint{Provider: provider, KeyVar: "the client's key", URLVar: "the client's"}
	c := m.config
	if c.Model == "" {
		return nil, e.BadRequest(errors.New("no model is named"))
	}
	body, err := messages.Request(messages.Options{Model: c.Model, MaxTokens: c.MaxTokens, ThinkingTokens: c.ThinkingTokens}, req)
	if err != nil {
		return nil, e.BadRequest(err)
	}
	params := param.Override[anthropic.MessageNewParams](json.RawMessage(body))
	s := m.client.Messages.NewStreaming(ctx, params, option.WithMaxRetries(0),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			e.Hide(r.Header)
			return e.Middleware(r, next)
		}))
	defer s.Close()
	r := messages.Reader{Endpoint: e, Stream: stream}
	for !r.Ended() && s.Next() { // the body may stay open after the last event
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := r.Add([]byte(s.Current().RawJSON())); err != nil {
			return nil, err
		}
	}
	if r.Ended() {
		return r.Reply(), nil
	}
	if err := s.Err(); err != nil {
		var said *anthropic.Error // an event of the stream; other answers do not get here
		if errors.As(err, &said) && ctx.Err() == nil {
			return nil, e.Said([]byte(said.RawJSON()))
		}
		return nil, e.Error(ctx, err)
	}
	return nil, e.Cut(ctx)
}
