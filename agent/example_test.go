//go:build linux

package agent_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
)

// A question, the code that answers it, and the answer. The model here is a
// script; openai.New and anthropic.New make real ones.
func Example() {
	ctx := context.Background()
	model := script("```python\nprint(sum(range(1, 101)))\n```", "The sum of 1 to 100 is exactly 5050.")
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer executor.Close()
	a, err := agent.New(model, executor)
	if err != nil {
		log.Fatal(err)
	}
	s := a.Session("")
	defer s.Close()
	answer, err := s.Ask(ctx, agent.Question{Text: "What is the sum of 1 to 100?"}, func(e agent.Event) {
		if e.Type == agent.EventOutput {
			fmt.Print("output: ", e.Text)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output:
	// output: 5050
	// The sum of 1 to 100 is exactly 5050.
}

// A Go function as a tool: its schema comes from its types.
func ExampleNewTool() {
	type query struct {
		City string `json:"city" jsonschema:"the city's name in English"`
	}
	tool, err := agent.NewTool("population", "Inhabitants of a city", func(ctx context.Context, q query) (int, error) {
		return map[string]int{"Bern": 134591}[q.City], nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(tool.Spec().Schema))
	out, err := tool.Call(context.Background(), []byte(`{"city":"Bern"}`))
	fmt.Println(out.Text, err)
	_, err = tool.Call(context.Background(), []byte(`{"town":"Bern"}`))
	fmt.Println(err != nil)
	// Output:
	// {"type":"object","properties":{"city":{"type":"string","description":"the city's name in English"}},"required":["city"],"additionalProperties":false}
	// 134591 <nil>
	// true
}
