//go:build linux

// Command cubby-engine is the program in which Cubby's sandboxes live. cubby carries
// it inside, or finds it beside itself, and starts it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/engineprogram"
	"github.com/cubby-sandbox/cubby/cmd/internal/entry"
)

func main() {
	engineprogram.Dispatch()
	if err := entry.KeepClosed(); err != nil {
		fmt.Fprintln(os.Stderr, "cubby-engine:", err)
		os.Exit(125)
	}
	os.Exit(engineprogram.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
