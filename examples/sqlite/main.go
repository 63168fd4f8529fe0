// Command sqlite asks a question to a database. At the root of the repository:
//
//	go run ./examples/sqlite
package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/data"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/examples/internal/files"
	"github.com/cubby-sandbox/cubby/examples/internal/model"
	_ "modernc.org/sqlite" // the driver "sqlite"
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

// run makes employment.sqlite in dir, asks, prints the answer and saves its files.
func run(ctx context.Context, out io.Writer, m agent.Model, dir string) error {
	path := filepath.Join(dir, "employment.sqlite")
	if err := build(ctx, path, "examples/sqlite/us-employment.csv"); err != nil {
		return err
	}
	executor, err := sandbox.New(ctx, sandbox.Config{})
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

// build makes a database at path, with the table jobs of a CSV file.
func build(ctx context.Context, path, source string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS jobs; CREATE TABLE jobs (month TEXT PRIMARY KEY, "+strings.Join(rows[0][1:], " NUMERIC, ")+" NUMERIC)"); err != nil {
		return err
	}
	values := []any{}
	for _, cell := range slices.Concat(rows[1:]...) {
		values = append(values, cell)
	}
	marks := strings.Repeat(", (?"+strings.Repeat(", ?", len(rows[0])-1)+")", len(rows)-1)
	_, err = db.ExecContext(ctx, "INSERT INTO jobs VALUES "+marks[2:], values...)
	return err
}
