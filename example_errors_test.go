//go:build linux

package cubby_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// What code does wrong is in its Execution; an error means that it could not be run.
func ExampleExecution() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	ex, err := sbx.RunCode(ctx, "1/0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.Error.Name+":", ex.Error.Value)
	ex, err = sbx.RunCode(ctx, "while True: pass", cubby.WithTimeout(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.TimedOut, ex.ExitCode, ex.StateLost)
	// Output:
	// ZeroDivisionError: division by zero
	// true 124 false
}

// Programs decide by an error's code, and people read its text and its hint.
func ExampleError() {
	ctx := context.Background()
	sbx := newSandbox()
	if err := sbx.Kill(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := sbx.RunCode(ctx, "1")
	switch cubby.CodeOf(err) {
	case cubby.CodeSandboxGone:
		fmt.Println("make another one")
	case cubby.CodeRateLimited, cubby.CodeUnavailable:
		fmt.Println("try again later")
	}
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		fmt.Println(e.Op, "-", e.Code, e.Code.HTTPStatus())
	}
	// Output:
	// make another one
	// run code - sandbox_gone 502
}
