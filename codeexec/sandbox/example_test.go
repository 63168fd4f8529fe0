//go:build linux

package sandbox_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
)

// The code of a model's reply runs in a sandbox of this machine.
func Example() {
	ctx := context.Background()
	ce, err := sandbox.New(ctx, sandbox.Config{Executor: e2b.Config{Timeout: 30 * time.Second}})
	if err != nil {
		log.Fatal(err)
	}
	defer ce.Close()

	reply := "I will compute it.\n\n```python\nresult = 15 + 27 * 3\nprint(result)\n```\n"
	blocks := codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{Delimiters: ce.CodeBlockDelimiters(), Languages: ce.Languages()})
	res, err := ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: blocks, ExecutionID: "conversation-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.ToolOutput(codeexec.RenderOptions{}).Text)

	// Variables last.
	res, err = ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "print(result / 0)", ExecutionID: "conversation-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Outcome, res.Error, "in line", res.Error.Line)
	// Output:
	// ```tool_output
	// 96
	// ```
	// failed ZeroDivisionError: division by zero in line 1
}

// A workspace for a task: files go in, a program runs, files come out.
func ExampleCodeExecutor_Engine() {
	ctx := context.Background()
	ce, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer ce.Close()
	engine := ce.Engine()

	ws, err := engine.Manager().CreateWorkspace(ctx, "report", codeexec.WorkspacePolicy{})
	if err != nil {
		log.Fatal(err)
	}
	err = engine.FS().PutFiles(ctx, ws, []codeexec.PutFile{{Path: "work/sales.csv", Content: []byte("jan,120\nfeb,135\n")}})
	if err != nil {
		log.Fatal(err)
	}
	run, err := engine.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{
		Cmd: "sh", Args: []string{"-c", `wc -l < "$WORK_DIR/sales.csv"; sort -r "$WORK_DIR/sales.csv" > "$OUTPUT_DIR/sorted.csv"`},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(run.Stdout)
	files, err := engine.FS().Collect(ctx, ws, []string{"$OUTPUT_DIR/**"})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		fmt.Printf("%s, %s:\n%s", f.Name, f.MIMEType, f.Content)
	}
	// Output:
	// 2
	// out/sorted.csv, text/csv:
	// jan,120
	// feb,135
}

// Several answers are tried from where a conversation is, and it goes on with one.
func Example_try() {
	ctx := context.Background()
	ce, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer ce.Close()
	const id = "conversation"
	python := func(code string) codeexec.CodeExecutionInput {
		return codeexec.CodeExecutionInput{Code: code, ExecutionID: id}
	}
	if _, err := ce.ExecuteCode(ctx, python("total = 40")); err != nil {
		log.Fatal(err)
	}
	trial, err := ce.Try(ctx, id, []codeexec.CodeExecutionInput{python("total += 'two'"), python("total += 2")})
	if err != nil {
		log.Fatal(err)
	}
	defer trial.Close()
	for i, r := range trial.Results() {
		if r.Err == nil && r.Outcome == codeexec.OutcomeOK {
			if err := trial.Keep(ctx, i); err != nil {
				log.Fatal(err)
			}
			break
		}
	}
	r, err := ce.ExecuteCode(ctx, python("print(total)"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(r.Output)
	// Output: 42
}
