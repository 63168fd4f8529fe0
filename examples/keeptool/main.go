// Command keeptool has a model make a tool, which is then used by a model in
// another session and by this program. Run it at the root of the repository:
//
//	go run ./examples/keeptool
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/toolbox"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/examples/internal/model"
)

const (
	makeIt = "Write a Python function that checks an IBAN: its form and its check digits. It takes the text iban and returns an object with valid, and the country or the reason. Try it, then keep it as a tool named check_iban."
	useIt  = "Which of these are valid: FR14 2004 1010 0505 0001 3M02 606 and NL91 ABNA 0417 1643 01?"
)

func main() {
	m, err := model.Open(os.Stdout, "examples/keeptool/script.yaml")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, m, "examples/out/keeptool")
	m.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// run has the tool made, which is a file in dir afterwards, and uses it twice.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	if err := session(ctx, out, m, dir, makeIt); err != nil {
		return err
	}
	if err := session(ctx, out, m, dir, useIt); err != nil {
		return err
	}

	// A program calls it like a function, in a sandbox all the same.
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer executor.Close()
	box, err := toolbox.Open(dir)
	if err != nil {
		return err
	}
	for _, iban := range []string{"DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 01"} {
		args, err := json.Marshal(map[string]string{"iban": iban})
		if err != nil {
			return err
		}
		result, err := box.Call(ctx, executor, "program", "check_iban", args)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "this program calls check_iban(%q): %s\n", iban, result.Value)
	}
	return nil
}

// session asks one question, with the tools of dir, in a sandbox of its own.
func session(ctx context.Context, out io.Writer, m agent.Model, dir, question string) error {
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer executor.Close()
	box, err := toolbox.Open(dir)
	if err != nil {
		return err
	}
	a, err := agent.New(m, executor, agent.WithMode(agent.ModeTools), agent.WithToolbox(box))
	if err != nil {
		return err
	}
	s := a.Session("")
	defer s.Close()
	answer, err := s.Ask(ctx, agent.Question{Text: question}, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", codeexec.CleanText(answer.Text))
	return nil
}
