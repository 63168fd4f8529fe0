package anthropic_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// A model is asked; its reply comes in pieces and then as a whole. The server here
// replies from a script: without BaseURL it is the provider's own, with FromEnv the one
// of the environment.
func Example() {
	server, err := modelserver.Start(modelserver.Config{Script: modelserver.Say("Forty-two.")})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	model := anthropic.New(anthropic.Config{Model: "a-model", APIKey: "a-key", BaseURL: server.AnthropicURL()})
	reply, err := model.Generate(context.Background(), agent.Request{
		Messages: []agent.Message{agent.UserText("How much is 6*7?")},
	}, func(d agent.Delta) { /* show d.Text as it comes */ })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Message.Text())
	// Output: Forty-two.
}
