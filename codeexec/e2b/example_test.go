//go:build linux

package e2b_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// The server of these examples: what `cubby serve` prints.
func url() string { return exampleServer.URL }
func key() string { return exampleServer.Key }

// An executor for an agent with conversations of several turns: variables and
// files last from turn to turn.
func Example() {
	ce, err := e2b.New(
		// The server: Cubby, E2B or Cube.
		e2b.WithAPIURL(url()),
		e2b.WithAPIKey(key()),
		// A template with a code interpreter.
		e2b.WithTemplate("code-interpreter-v1"),
		// How long the sandbox lives, and an execution may take.
		e2b.WithSandboxTimeout(10*time.Minute),
		e2b.WithExecutionTimeout(60*time.Second),
		// Workspaces last for a session.
		e2b.WithWorkspacePersistence(e2b.WorkspacePersistencePerSession),
	)
	if err != nil {
		panic(err)
	}
	defer ce.Close()

	ctx := context.Background()
	for _, reply := range []string{
		"Let me load the numbers.\n\n```python\nimport statistics\nsales = [120, 135, 150]\n```\n",
		"Now the mean:\n\n```python\nprint(statistics.mean(sales))\n```\nand the kernel:\n\n```bash\nuname -s\n```\n",
	} {
		blocks := codeexec.ExtractCodeBlocks(reply, codeexec.ExtractOptions{Delimiters: ce.CodeBlockDelimiters()})
		res, err := ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: blocks, ExecutionID: "conversation-1"})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d blocks, %s: %q\n", len(blocks), res.Outcome, res.Output)
	}
	// Output:
	// 1 blocks, ok: ""
	// 2 blocks, ok: "135\nLinux\n"
}

// The server, its key and the template may come from E2B_API_URL, E2B_API_KEY
// and CUBE_TEMPLATE_ID instead.
func ExampleCreate() {
	ctx := context.Background()
	ce, err := e2b.Create(ctx, e2b.Config{
		APIURL: url(), APIKey: key(), Template: "code-interpreter-v1",
		Timeout:     30 * time.Second, // of each block; 60 seconds if left out
		IdleTimeout: 10 * time.Minute, // renewed by every use; an hour if left out
	})
	if err != nil {
		log.Fatal(err)
	}
	// Close would end the sandbox as well, since this executor made it.
	defer ce.Destroy(ctx)
	res, err := ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{
		{Language: "tool_code", Code: "result = 15 + 27 * 3\nprint(result)"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.ToolOutput(codeexec.RenderOptions{}).Text)
	// Output:
	// ```tool_output
	// 96
	// ```
}

// A sandbox outlives the program that made it, if that detaches, and another
// program goes on in it.
func ExampleAttach() {
	ctx := context.Background()
	cfg := e2b.Config{APIURL: url(), APIKey: key(), Template: "code-interpreter-v1"}
	first, err := e2b.Create(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := first.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "x = 41"}); err != nil {
		log.Fatal(err)
	}
	cfg.SandboxID = first.SandboxID()
	if err := first.Detach(); err != nil {
		log.Fatal(err)
	}

	second, err := e2b.Attach(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Destroy(ctx)
	res, err := second.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "print(x + 1)"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Output)
	// Output: 42
}

// A long-lived agent keeps the sandbox's id somewhere, and is told when that is
// good for nothing any more.
func ExampleCreateOrRecreate() {
	ctx := context.Background()
	cfg := e2b.Config{APIURL: url(), APIKey: key(), Template: "code-interpreter-v1"}
	first, err := e2b.Create(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	locator := map[string]string{"agent": first.SandboxID()}
	// The sandbox ends meanwhile: here at once, else for idleness.
	if err := first.Destroy(ctx); err != nil {
		log.Fatal(err)
	}

	cfg.SandboxID = locator["agent"]
	ce, err := e2b.CreateOrRecreate(ctx, cfg, func(oldID string) {
		fmt.Println("recreated:", oldID == locator["agent"])
		clear(locator)
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ce.Destroy(ctx)
	locator["agent"] = ce.SandboxID()
	res, err := ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "print('goes on')"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Output)
	// Output:
	// recreated: true
	// goes on
}

// Workspaces: a folder for each task, with programs that run in it.
func ExampleCodeExecutor_Engine() {
	ctx := context.Background()
	ce, err := e2b.Create(ctx, e2b.Config{
		APIURL: url(), APIKey: key(), Template: "code-interpreter-v1",
		WorkspaceRoot: "/workspace/cube_agent", // the same if left out
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ce.Close()
	manager, fs, runner := ce.Engine().Manager(), ce.Engine().FS(), ce.Engine().Runner()

	ws, err := manager.CreateWorkspace(ctx, "demo-1", codeexec.WorkspacePolicy{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.HasPrefix(ws.Path, "/workspace/cube_agent/ws_demo-1_"))
	err = fs.PutFiles(ctx, ws, []codeexec.PutFile{{Path: "work/script.py", Content: []byte("print('script ran')\n")}})
	if err != nil {
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
	// true
	// 0 script ran
	// work/script.py 20
}

// A pool gives each conversation a sandbox of its own.
func ExamplePool() {
	ctx := context.Background()
	cfg := e2b.Config{APIURL: url(), APIKey: key(), Template: "code-interpreter-v1"}
	pool, err := e2b.NewPool(ctx, cfg, e2b.PoolConfig{Size: 8, IdleTimeout: 10 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for _, conversation := range []string{"ada", "grace", "ada"} {
		res, err := pool.ExecuteCode(ctx, codeexec.CodeExecutionInput{
			Code: "turn = globals().get('turn', 0) + 1\nprint(turn)", ExecutionID: conversation,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(conversation, " ", res.Output)
	}
	// Output:
	// ada 1
	// grace 1
	// ada 2
}
