// Command convert has a CSV file converted to JSON Lines and to a SQLite database,
// with a check that nothing was lost. Run it at the root of the repository:
//
//	go run ./examples/convert
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/data"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/examples/internal/files"
	"github.com/cubby-sandbox/cubby/examples/internal/model"
)

const question = "Convert this CSV file to JSON Lines (weather.jsonl) and to a SQLite database (weather.sqlite, table weather), numbers as numbers. Then read both again and verify that they hold the same values."

func main() {
	m, err := model.Open(os.Stdout, "examples/convert/script.yaml")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, m, "examples/out/convert")
	m.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// run has it converted, prints the answer and saves the files in dir.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer executor.Close()
	a, err := agent.New(m, executor, agent.WithMode(agent.ModeTools)) // for models that call tools
	if err != nil {
		return err
	}
	source, err := data.File(ctx, executor, "examples/weather/seattle-weather.csv")
	if err != nil {
		return err
	}
	text, inputs := data.Question(question, source)
	s := a.Session("")
	defer s.Close()
	answer, err := s.Ask(ctx, agent.Question{Text: text, Files: inputs}, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", codeexec.CleanText(answer.Text))
	return files.Save(out, dir, answer.Files)
}
