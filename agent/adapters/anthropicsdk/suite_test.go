package anthropicsdk_test

import (
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/adapters/anthropicsdk"
	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(s *modelserver.Server, name, key string) agent.Model {
		return anthropicsdk.New(newClient(s, key), anthropicsdk.Config{Model: name})
	})
}

func TestStreams(t *testing.T) {
	modeltest.RunRaw(t, modeltest.Messages(), true, func(url string) agent.Model {
		return anthropicsdk.New(anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey("k")), anthropicsdk.Config{Model: "m"})
	})
}
