//go:build linux

package cubby_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby"
)

// Each language has a kernel whose variables last from call to call.
func ExampleSandbox_RunCode() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	if _, err := sbx.RunCode(ctx, "greeting = 'hello'"); err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, "import os\nprint(greeting, os.environ['NAME'])",
		cubby.WithEnv(map[string]string{"NAME": "Ada"}),
		cubby.OnStdout(func(text string) { fmt.Print("as it comes: ", text) }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print("at the end: ", ex.Stdout)
	ex, err = sbx.RunCode(ctx, "echo from $((1 + 1)) languages", cubby.WithLanguage("bash"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(ex.Stdout)
	// Output:
	// as it comes: hello Ada
	// at the end: hello Ada
	// from 2 languages
}

// Contexts are kernels beside the default ones: their variables do not meet.
func ExampleSandbox_CreateContext() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	other, err := sbx.CreateContext(ctx, "python", cubby.WithCwd("/tmp"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sbx.RunCode(ctx, "x = 1"); err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, "import os\n'x' in globals(), os.getcwd()", cubby.InContext(other))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.Text())
	if err := sbx.RemoveContext(ctx, other); err != nil {
		log.Fatal(err)
	}
	// Output: (False, '/tmp')
}
