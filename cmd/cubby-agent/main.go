// Command cubby-agent answers questions with a language model that writes code,
// which runs in a sandbox. It is what `cubby agent` starts. It is a module of its
// own, since the models' SDKs would double the size of cubby.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}
