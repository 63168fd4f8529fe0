//go:build linux

package cubby_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// A command is a program of its own. That it fails is no error: its status says so.
func ExampleCommands_Run() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	res, err := sbx.Commands().Run(ctx, "sort; echo done >&2; exit 3",
		cubby.WithStdin(strings.NewReader("pear\napple\n")), cubby.WithCwd("/tmp"), cubby.WithUser("root"),
		cubby.WithTimeout(time.Minute))
	if err != nil {
		log.Fatal(err) // of the sandbox
	}
	fmt.Printf("%q %q %d\n", res.Stdout, res.Stderr, res.ExitCode)
	// Output: "apple\npear\n" "done\n" 3
}

// What a command writes can go to writers instead, byte by byte and without a bound.
func ExampleStderrTo() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	var out, problems bytes.Buffer
	res, err := sbx.Commands().Run(ctx, "echo result; echo problem >&2", cubby.StdoutTo(&out), cubby.StderrTo(&problems))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q %q %q\n", out.String(), problems.String(), res.Stdout+res.Stderr)
	// Output: "result\n" "problem\n" ""
}

// A command that was started goes on by itself. Later, also in another program, it is
// found by its tag.
func ExampleCommands_Start() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	cmd, err := sbx.Commands().Start(ctx, "while read line; do echo got $line; done",
		cubby.WithOpenStdin(), cubby.WithTag("reader"))
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range []string{"a\n", "b\n"} {
		if err := cmd.Write(ctx, []byte(line)); err != nil {
			log.Fatal(err)
		}
	}
	all, err := sbx.Commands().List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(all), all[0].Tag)
	if err := cmd.CloseStdin(ctx); err != nil {
		log.Fatal(err)
	}
	res, err := cmd.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Stdout)
	// Output:
	// 1 reader
	// got a
	// got b
}
