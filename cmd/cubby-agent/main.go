// Command cubby-agent answers questions with a language model that writes code,
// which runs in a sandbox. It is what `cubby agent` starts. It is a module of its
// own, since the models' SDKs would double the size of cubby.
package main

import (
	"context"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/entry"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
)

func main() {
	if err := entry.KeepClosed(); err != nil {
		os.Exit(report(os.Stderr, err))
	}
	code := run(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})
	if code == exitBrokenPipe {
		output.DieOfPipe()
	}
	os.Exit(code)
}
