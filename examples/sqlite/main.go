// Command sqlite makes a database and asks a question to it. Run it at the root
// of the repository:
//
//	go run ./examples/sqlite
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/data"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/examples/internal/files"
	"github.com/cubby-sandbox/cubby/examples/internal/model"
)

const question = "The table jobs holds the jobs in the U.S. in thousands, by month. How many were lost from the peak before 2010 to the trough after it, when was the peak's number reached again, and which sectors lost most? Save the changes of the sectors as sectors.csv."

func main() {
	m, err := model.Open(os.Stdout, "examples/sqlite/script.yaml")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, m, "examples/out/sqlite")
	m.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// run makes employment.sqlite in dir, asks, and prints the answer. The database is
// only read: what comes back is what the model's code made of it.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	path := filepath.Join(dir, "employment.sqlite")
	if err := build(ctx, path, "examples/sqlite/us-employment.csv"); err != nil {
		return err
	}
	executor, err := sandbox.New(ctx)
	if err != nil {
		return err
	}
	defer executor.Close()
	a, err := agent.New(m, executor)
	if err != nil {
		return err
	}
	jobs, err := data.File(ctx, executor, path)
	if err != nil {
		return err
	}
	text, inputs := data.Question(question, jobs)
	s := a.Session("")
	defer s.Close()
	answer, err := s.Ask(ctx, agent.Question{Text: text, Files: inputs}, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", codeexec.CleanText(answer.Text))
	return files.Save(out, dir, answer.Files)
}
