// Command serve serves a script as a model's endpoint, for the demo and for
// trying programs that talk to models:
//
//	go run ./internal/modelserver/serve -script demo -delay 20ms
//
// It prints the base URLs as lines NAME=URL that a shell can read, then an empty
// line, and serves until its standard input ends or it gets a signal. Any key and
// any name of a model will do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("script", "demo", "a `script` of this package, or the path of one")
	address := flags.String("address", "127.0.0.1:0", "where to listen")
	delay := flags.Duration("delay", 0, "the pause between two pieces of a streamed reply")
	if err := flags.Parse(args); err != nil {
		return err
	}
	script, err := modelserver.Load(*name)
	if err != nil {
		return err
	}
	server, err := modelserver.Listen(*address, modelserver.Config{Script: script, Delay: *delay, NoKey: true})
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := fmt.Fprintf(stdout, "OPENAI_BASE_URL=%s\nANTHROPIC_BASE_URL=%s\n\n", server.OpenAIURL(), server.AnthropicURL()); err != nil {
		return err
	}
	// The goroutine ends with the program where standard input never ends.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stdin) // an error is an end, too
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}
