// Command report has a report written, with pictures in it. Run it at the root of
// the repository:
//
//	go run ./examples/report
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

const question = "Write a report on carbon dioxide at Mauna Loa as report.html: how much it rose, how fast, and what a year looks like."

// house is what every report of ours has.
const house = "Reports are one HTML file that holds its pictures and needs no other, and name their source; here it is: Scripps CO2 Program, CC BY 4.0."

func main() {
	m, err := model.Open(os.Stdout, "examples/report/script.yaml")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, m, "examples/out/report")
	m.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// run has the report written, prints the answer and saves the files in dir.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer executor.Close()
	a, err := agent.New(m, executor, agent.WithInstructions(house))
	if err != nil {
		return err
	}
	source, err := data.File(ctx, executor, "examples/report/co2-concentration.csv")
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
