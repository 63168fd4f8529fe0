//go:build linux

package fromenv_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/container"
	"github.com/cubby-sandbox/cubby/codeexec/fromenv"
)

// One program for development and production: CODE_EXECUTOR_TYPE decides.
func Example() {
	os.Setenv(fromenv.Variable, "unsafe_local")
	defer os.Unsetenv(fromenv.Variable)
	ctx := context.Background()
	executor, err := fromenv.New(ctx, fromenv.Config{Container: container.Config{Image: "python:3-slim"}})
	if err != nil {
		log.Fatal(err) // such as: Docker is not installed, and what to do about it
	}
	defer executor.Close()

	result, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "print(15 + 27 * 3)"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result)
	// Output:
	// Code execution result:
	// 96
}
