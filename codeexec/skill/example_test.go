//go:build linux || darwin

package skill_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/local"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

// What an agent does with a skill: read what there is, load it, run its script
// on a file of the conversation, take the result. Any backend's engine will do.
func Example() {
	ctx := context.Background()
	root := filepath.Join(os.TempDir(), "example-skills")
	defer os.RemoveAll(root)
	executor, err := local.NewUnsafe(ctx, local.Config{WorkspaceRoot: root})
	if err != nil {
		log.Fatal(err)
	}
	defer executor.Close()
	repo, err := skill.NewFolders("testdata/skills")
	if err != nil {
		log.Fatal(err)
	}
	tools, err := skill.NewTools(skill.Config{Repository: repo, Engine: executor.Engine(), ExecutionID: "conversation-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer tools.Close()
	ctx = codeexec.WithArtifactService(ctx, &artifact.Memory{})
	if _, err := artifactctx.Save(ctx, "weather.csv", []byte("day,rain\n1,0.4\n2,1.5\n"), "text/csv"); err != nil {
		log.Fatal(err)
	}

	fmt.Print(tools.Overview()) // for the system prompt
	loaded, err := tools.Load(ctx, skill.LoadInput{Skill: "csv-report"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.OtherDocs)
	out, err := tools.Run(ctx, skill.RunInput{
		Skill: "csv-report", Command: "python3 scripts/report.py inputs/weather.csv",
		Inputs: []codeexec.InputSpec{{From: "artifact://weather.csv"}}, SaveAsArtifacts: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(out.ExitCode, " ", out.Stdout, out.PrimaryOutput.Content)
	fmt.Println(out.ArtifactFiles)
	// Output:
	// Available skills (load one with skill_load before you use it):
	// - csv-report: Turns a CSV file into a report. Use it for questions about tables.
	// [docs/columns.md]
	// 0 columns: day, rain
	// # Report
	//
	// 2 rows, 2 columns
	// [{out/report.md 0}]
}
