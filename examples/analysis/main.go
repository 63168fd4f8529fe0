// Command analysis asks a question to a table, and wants a chart. Run it at the
// root of the repository:
//
//	go run ./examples/analysis
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

const question = "Which year was the wettest in Seattle, and which the driest? Draw the rain of each year as a chart and save it."

func main() {
	m, err := model.Open(os.Stdout, "demo")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, m, "examples/out/analysis")
	m.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// run asks, shows what happens, prints the answer and saves its files in dir.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer executor.Close()
	a, err := agent.New(m, executor)
	if err != nil {
		return err
	}
	weather, err := data.File(ctx, executor, "examples/weather/seattle-weather.csv")
	if err != nil {
		return err
	}
	text, inputs := data.Question(question, weather)
	s := a.Session("")
	defer s.Close()
	answer, err := s.Ask(ctx, agent.Question{Text: text, Files: inputs}, func(e agent.Event) {
		switch e.Type {
		case agent.EventCode:
			fmt.Fprintf(out, "--- %s ---\n%s\n", e.Language, codeexec.CleanText(e.Code))
		case agent.EventOutput:
			fmt.Fprint(out, codeexec.CleanText(e.Text))
		case agent.EventResult:
			if e.Result != nil && e.Result.Error != nil {
				fmt.Fprintf(out, "failed: %q\n", e.Result.Error)
			}
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n\n", codeexec.CleanText(answer.Text))
	return files.Save(out, dir, answer.Files)
}
