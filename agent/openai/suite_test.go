package openai_test

import (
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/agent/openai"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(s *modelserver.Server, name, key string) agent.Model {
		return openai.New(openai.Config{Model: name, BaseURL: s.OpenAIURL(), APIKey: key})
	})
}

func TestStreams(t *testing.T) {
	modeltest.RunRaw(t, modeltest.Completions(), false, func(url string) agent.Model {
		return openai.New(openai.Config{Model: "m", BaseURL: url, APIKey: "k"})
	})
}
