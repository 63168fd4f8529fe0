package openaisdk_test

import (
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/adapters/openaisdk"
	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(s *modelserver.Server, name, key string) agent.Model {
		return openaisdk.New(newClient(s, key), openaisdk.Config{Model: name})
	})
}

func TestStreams(t *testing.T) {
	modeltest.RunRaw(t, modeltest.Completions(), true, func(url string) agent.Model {
		return openaisdk.New(openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("k")), openaisdk.Config{Model: "m"})
	})
}
