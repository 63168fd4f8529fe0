package embedded_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

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

// Commands are programs of their own: output as it comes, input, a status. A
// command that fails is no error.
func Example_commands() {
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
	res, err := sbx.Commands().Run(ctx, "wc -l; echo done >&2; exit 3",
		cubby.WithStdin(strings.NewReader("one\ntwo\n")),
		cubby.WithCwd("/tmp"), cubby.WithUser("root"), cubby.WithTimeout(time.Minute),
		cubby.OnStdout(func(text string) { fmt.Print("heard ", text) }))
	if err != nil {
		log.Fatal(err) // not the command: the sandbox
	}
	fmt.Printf("%q %d %s\n", res.Stderr, res.ExitCode, res.Status)
	// Output:
	// heard 2
	// "done\n" 3 exit status 3
}

// A command that was started is talked to, signalled and waited for.
func Example_start() {
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
	cmd, err := sbx.Commands().Start(ctx, "while read line; do echo got $line; done", cubby.WithOpenStdin())
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range []string{"a\n", "b\n"} {
		if err := cmd.Write(ctx, []byte(line)); err != nil {
			log.Fatal(err)
		}
	}
	if err := cmd.CloseStdin(ctx); err != nil {
		log.Fatal(err)
	}
	res, err := cmd.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Stdout)
	// Output:
	// got a
	// got b
}

// A folder is watched from the moment when Watch returns.
func Example_watch() {
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
	w, err := sbx.Files().Watch(ctx, cubby.Home, cubby.WatchOptions{Recursive: true})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := sbx.Files().Write(ctx, "notes/today.txt", strings.NewReader("hello"), 0); err != nil {
		log.Fatal(err)
	}
	for e, err := range w.Events() {
		if err != nil {
			log.Fatal(err)
		}
		if e.Type == cubby.EventCreate && e.Name == "notes/today.txt" {
			fmt.Println(e.Type, e.Name)
			break
		}
	}
	// Output: create notes/today.txt
}
