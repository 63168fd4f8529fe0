//go:build linux

package toolbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/agent/toolbox"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// Code that a model wrote is kept as a tool, and called with arguments. The local
// executor runs it without any protection: programs of yours take a sandbox's.
func Example() {
	ctx := context.Background()
	box := toolbox.Memory()
	_, err := box.Keep(ctx, toolbox.Kept{
		Name: "area", Description: "The area of a rectangle.", Language: "python", Function: "area",
		Code:   "def area(width, height):\n    return {'area': width * height}\n",
		Schema: json.RawMessage(`{"type": "object", "properties": {"width": {"type": "number"}, "height": {"type": "number"}}}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	executor, err := local.NewUnsafe(ctx, local.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer executor.Close()
	result, err := box.Call(ctx, executor, "session-1", "area", json.RawMessage(`{"width": 3, "height": 4}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(result.Value))
	// Output: {"area": 12}
}
