package container_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/container"
)

// A model's reply, run in a container, and what the model is told.
func Example() {
	ctx := context.Background()
	ex, err := container.New(ctx, container.Config{
		Image: "python:3-slim", Delimiters: []codeexec.CodeBlockDelimiter{{Start: "```tool_code\n", End: "\n```"}},
	})
	if err != nil {
		log.Fatal(err) // it says what is missing, and how to get it
	}
	defer ex.Close()

	reply := "I will compute it.\n\n```tool_code\nresult = 15 + 27 * 3\nprint(result)\n```\n"
	blocks := codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{Delimiters: ex.CodeBlockDelimiters(), Languages: ex.Languages()})
	r, err := ex.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: blocks, ExecutionID: "conversation-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.ToolOutput(codeexec.RenderOptions{}).Text)
}

// An image of one's own, with packages and a network, and smaller bounds.
func ExampleNew_dockerfile() {
	ex, err := container.New(context.Background(), container.Config{
		Dockerfile: "./agent-image", Network: "bridge", MemoryBytes: 512 << 20, DiskBytes: 128 << 20, MaxPIDs: 64,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ex.Close()
}
