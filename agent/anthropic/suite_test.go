package anthropic_test

import (
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(s *modelserver.Server, name, key string) agent.Model {
		return anthropic.New(anthropic.Config{Model: name, BaseURL: s.AnthropicURL(), APIKey: key})
	})
}

func TestStreams(t *testing.T) {
	modeltest.RunRaw(t, modeltest.Messages(), false, func(url string) agent.Model {
		return anthropic.New(anthropic.Config{Model: "m", BaseURL: url, APIKey: "k"})
	})
}
