package embedded_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
)

// Code runs in a sandbox of its own, and its variables last until it is killed.
func Example() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, "print(6*7)")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(ex.Stdout)
	ex, err = sbx.RunCode(ctx, "{'answer': 42}")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.Text())
	ex, err = sbx.RunCode(ctx, "ls no-such-file", cubby.WithLanguage("bash"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.ExitCode)
	// Output:
	// 42
	// {'answer': 42}
	// 2
}
