// Command retrieval asks a question to a folder of texts: the model writes the
// code that searches them, and cites the files that it read. Run it at the root
// of the repository:
//
//	go run ./examples/retrieval
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/examples/internal/files"
	"github.com/cubby-sandbox/cubby/examples/internal/model"
)

const (
	question     = "The anemometer shows zero in a strong wind, at 6 °C. What is wrong, which part is needed, where is that, and who may change it, when?"
	instructions = "Answer from the files in the folder texts only. Search them by code, and do not print them whole. After each statement cite the file that says it, by its name in brackets, such as [texts/mast.md]."
)

func main() {
	m, err := model.Open(os.Stdout, "examples/retrieval/script.yaml")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, m, "examples/out/retrieval")
	m.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// run asks, prints the answer and which files it rests on, and saves it in dir.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	executor, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer executor.Close()
	a, err := agent.New(m, executor, agent.WithInstructions(instructions))
	if err != nil {
		return err
	}
	texts, err := read("examples/retrieval/texts")
	if err != nil {
		return err
	}
	s := a.Session("")
	defer s.Close()
	answer, err := s.Ask(ctx, agent.Question{Text: question, Files: texts}, nil)
	if err != nil {
		return err
	}
	text := codeexec.CleanText(answer.Text)
	fmt.Fprintf(out, "%s\n\n", text)
	for _, f := range texts {
		if strings.Contains(text, "["+f.Name+"]") {
			fmt.Fprintf(out, "cited: examples/retrieval/%s\n", f.Name)
		}
	}
	return files.Save(out, dir, append(answer.Files, codeexec.File{Name: "answer.md", Content: []byte(text + "\n")}))
}

// read returns the texts of a folder, below the name texts.
func read(folder string) ([]codeexec.File, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return nil, err
	}
	var texts []codeexec.File
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, codeexec.File{Name: "texts/" + filepath.Base(path), Content: content})
	}
	return texts, nil
}
