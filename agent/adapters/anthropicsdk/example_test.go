package anthropicsdk_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/adapters/anthropicsdk"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// A client of the SDK, with all its options, becomes a model. The server here
// replies from a script; newClient makes a client with its address and key.
func Example() {
	server, err := modelserver.Start(modelserver.Config{Script: modelserver.Say("Forty-two.")})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	model := anthropicsdk.New(newClient(server, "a-key"), anthropicsdk.Config{Model: "a-model"})
	reply, err := model.Generate(context.Background(), agent.Request{
		Messages: []agent.Message{agent.UserText("How much is 6*7?")},
	}, func(d agent.Delta) { /* show d.Text as it comes */ })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Message.Text())
	// Output: Forty-two.
}
