//go:build !cubby_docs

// Command cubby runs code in sandboxes. See README.md.
package main

import (
	"context"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/entry"
)

func main() {
	ctx := context.Background()
	beEngine(ctx)
	if err := entry.KeepClosed(); err != nil {
		os.Exit(report(os.Stderr, err))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
