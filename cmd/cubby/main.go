//go:build linux

// Command cubby runs code in sandboxes. See README.md.
package main

import (
	"context"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/entry"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest"
)

func main() {
	engines().Dispatch()
	if guest.IsGuest(os.Args[0]) {
		os.Exit(guest.Main())
	}
	if err := entry.KeepClosed(); err != nil {
		os.Exit(report(os.Stderr, err))
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
