//go:build linux || darwin

package local_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// A model's reply in, what the model reads next out.
func Example() {
	ctx := context.Background()
	executor, err := local.NewUnsafe(ctx, local.Config{Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer executor.Close()

	reply := "Let me compute that.\n\n```tool_code\nresult = 15 + 27 * 3\nprint(result)\n```\n"
	blocks := codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{
		Delimiters: executor.CodeBlockDelimiters(), Languages: executor.Languages(),
	})
	result, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: blocks})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.ToolOutput(codeexec.RenderOptions{}).Text)
	// Output:
	// ```tool_output
	// 96
	// ```
}

// Every option that tRPC-Agent's unsafe local executor has, at its default. How
// often code may fail in a row is for the loop to count.
func ExampleNewUnsafe() {
	ctx := context.Background()
	executor, err := local.NewUnsafe(ctx, local.Config{
		Delimiters: []codeexec.CodeBlockDelimiter{
			{Start: "```python\n", End: "\n```"},
			{Start: "```tool_code\n", End: "\n```"},
		},
		WorkDir:   "",               // a temporary folder for each call
		Timeout:   10 * time.Second, // of each block
		KeepFiles: false,            // temporary files are removed
	})
	if err != nil {
		log.Fatal(err)
	}
	defer executor.Close()
	failures := codeexec.NewFailureCounter(codeexec.ErrorRetryAttempts)

	for _, code := range []string{"print(1/0)", "print(nothing)", "print('not reached')"} {
		result, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: code})
		fmt.Println(result.Outcome, result.Error)
		if !failures.Record(result, err) {
			fmt.Println("two failures in a row: ask the user")
			break
		}
	}
	// Output:
	// failed ZeroDivisionError: division by zero
	// failed NameError: name 'nothing' is not defined
	// two failures in a row: ask the user
}

// Files of a conversation: put in, run, collected.
func ExampleUnsafeExecutor_Engine() {
	ctx := context.Background()
	root := filepath.Join(os.TempDir(), "example-workspaces")
	defer os.RemoveAll(root)
	executor, err := local.NewUnsafe(ctx, local.Config{WorkspaceRoot: root})
	if err != nil {
		log.Fatal(err)
	}
	defer executor.Close()
	manager, fs, runner := executor.Engine().Manager(), executor.Engine().FS(), executor.Engine().Runner()

	ws, err := manager.CreateWorkspace(ctx, "demo-1", codeexec.WorkspacePolicy{}) // ROOT/ws_demo-1_<time>
	if err != nil {
		log.Fatal(err)
	}
	if err := fs.PutFiles(ctx, ws, []codeexec.PutFile{{Path: "work/script.py", Content: []byte("print('script ran')\n")}}); err != nil {
		log.Fatal(err)
	}
	run, err := runner.RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "python3", Args: []string{"work/script.py"}, Timeout: 15 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(run.ExitCode, " ", run.Stdout)

	outputs, err := fs.CollectOutputs(ctx, ws, codeexec.OutputSpec{Globs: []string{"work/*.py"}, Inline: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, ref := range outputs.Files {
		fmt.Println(ref.Name, len(ref.Content))
	}
	if err := manager.CleanupID(ctx, "demo-1"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0 script ran
	// work/script.py 20
}
