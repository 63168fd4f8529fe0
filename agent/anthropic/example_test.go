package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// serve stands in for an endpoint: it says what it is told to.
func serve(replies ...modelserver.Reply) *modelserver.Server {
	script := &modelserver.Script{}
	for _, r := range replies {
		script.Steps = append(script.Steps, modelserver.Step{Reply: r})
	}
	srv, err := modelserver.Start(modelserver.Config{Script: script})
	if err != nil {
		log.Fatal(err)
	}
	return srv
}

// One question, whose answer is shown as it arrives.
func Example() {
	srv := serve(modelserver.Reply{Text: "The capital of France is Paris.", Usage: modelserver.Usage{Input: 14, Output: 8}})
	defer srv.Close()

	model := anthropic.New(anthropic.Config{Model: "some-model", APIKey: "key", BaseURL: srv.AnthropicURL()})
	request := agent.Request{System: "You are brief.", Messages: []agent.Message{agent.UserText("What is the capital of France?")}}
	reply, err := model.Generate(context.Background(), request, func(d agent.Delta) { fmt.Print(d.Text) })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("\n%s, %d tokens\n", reply.Stop, reply.Usage.Total())
	// Output:
	// The capital of France is Paris.
	// end, 22 tokens
}

// A tool that the model calls and whose result it reads. Package agent does this
// by itself.
func ExampleModel_Generate_tools() {
	srv := serve(
		modelserver.Reply{Calls: []modelserver.Call{{Name: "population", Arguments: map[string]any{"city": "Bern"}}}},
		modelserver.Reply{Text: "Bern has 134591 inhabitants."})
	defer srv.Close()

	ctx := context.Background()
	model := anthropic.New(anthropic.Config{Model: "some-model", APIKey: "key", BaseURL: srv.AnthropicURL()})
	request := agent.Request{
		Messages: []agent.Message{agent.UserText("How many people live in Bern?")},
		Tools: []agent.ToolSpec{{Name: "population", Description: "Inhabitants of a city",
			Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}},
	}
	for {
		reply, err := model.Generate(ctx, request, nil)
		if err != nil {
			log.Fatal(err)
		}
		if reply.Stop != agent.StopTools {
			fmt.Println(reply.Message.Text())
			return
		}
		results := agent.Message{Role: agent.RoleUser}
		for _, part := range reply.Message.Parts {
			if call, ok := part.(agent.ToolCall); ok {
				fmt.Printf("%s(%s)\n", call.Name, call.Arguments)
				results.Parts = append(results.Parts, agent.ToolResult{CallID: call.ID, Name: call.Name, Parts: []agent.Part{agent.Text{Text: "134591"}}})
			}
		}
		request.Messages = append(request.Messages, reply.Message, results)
	}
	// Output:
	// population({"city":"Bern"})
	// Bern has 134591 inhabitants.
}

// What went wrong, and what to do about it. [agent.Retry] asks again where that
// may help.
func ExampleModel_Generate_errors() {
	srv := serve(modelserver.Reply{Text: "Hello.", Fault: &modelserver.Fault{Status: 429, RetryAfterMS: 10, Times: 1}})
	defer srv.Close()

	ctx := context.Background()
	model := anthropic.New(anthropic.Config{Model: "some-model", APIKey: "key", BaseURL: srv.AnthropicURL()})
	request := agent.Request{Messages: []agent.Message{agent.UserText("Hello?")}}
	_, err := model.Generate(ctx, request, nil)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		fmt.Println(failed.Kind, failed.Status, failed.RetryAfter, failed.Temporary())
	}
	reply, err := agent.Retry(model, agent.RetryOptions{MaxWait: time.Second}).Generate(ctx, request, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Message.Text())
	// Output:
	// rate_limited 429 10ms true
	// Hello.
}

// The key and the address come from the environment, as with the provider's own
// libraries.
func ExampleFromEnv() {
	srv := serve(modelserver.Reply{Text: "Hello."})
	defer srv.Close()
	for name, value := range map[string]string{"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": srv.AnthropicURL()} {
		if err := os.Setenv(name, value); err != nil {
			log.Fatal(err)
		}
		defer os.Unsetenv(name)
	}

	model := anthropic.New(anthropic.FromEnv(anthropic.Config{Model: "some-model"}))
	reply, err := model.Generate(context.Background(), agent.Request{Messages: []agent.Message{agent.UserText("Hello?")}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Message.Text())
	// Output: Hello.
}
