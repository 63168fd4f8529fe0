package data

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

const (
	sqliteMagic = "SQLite format 3\x00"
	// describeID is the execution id under which databases are looked at.
	describeID = "cubby-data"
	maxAnswer  = 1 << 20
)

//go:embed sqlite.py
var sqliteProgram string

// table is what the program in the sandbox says of one: hostile.
type table struct {
	Name, Kind string
	Columns    []struct {
		Name, Type string
		Key        bool
	}
	Keys  []struct{ From, Table, To string }
	Rows  int64
	First [][]string
	Error string
}

// SQLite describes a database: tables with their columns, keys and numbers of
// rows. It is looked at in the executor, with its Python, since a database file
// can attack the library that opens it; this process never parses it. If executor
// is nil, or its code fails, the description says only what the file is.
func SQLite(ctx context.Context, executor codeexec.CodeExecutor, name string, content []byte) (Source, error) {
	s, err := newSource(name, content)
	if err != nil {
		return s, err
	}
	if !bytes.HasPrefix(content, []byte(sqliteMagic)) {
		return s, &cubby.Error{Op: "describe data", Code: cubby.CodeInvalidArgument, Err: errors.New(name + " is no SQLite database")}
	}
	head := fmt.Sprintf("The file %s is an SQLite database.", quoted(name))
	s.Description = head + " Look at its tables with Python's sqlite3."
	if executor == nil {
		return s, nil
	}
	const file = "database.sqlite"
	marker := "cubby-data-" + rand.Text() + ":"
	r, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		ExecutionID: describeID,
		InputFiles:  []codeexec.File{{Name: file, Content: content}},
		Code:        strings.NewReplacer("MARKER", marker, "PATH", file).Replace(sqliteProgram),
	})
	if err != nil {
		return s, execerr.Wrap("describe data", cubby.CodeUnavailable, err)
	}
	if tables, more, ok := tablesOf(r, marker); ok {
		s.Description = described(head, linesOfTables(tables, more))
	}
	return s, nil
}

func tablesOf(r codeexec.CodeExecutionResult, marker string) (tables []table, more, ok bool) {
	if len(r.Blocks) == 0 {
		return nil, false, false
	}
	_, answer, ok := strings.Cut(r.Blocks[0].Stdout, "\n"+marker)
	answer, _, _ = strings.Cut(answer, "\n")
	var a struct {
		Tables []table
		More   bool
	}
	if !ok || len(answer) > maxAnswer || json.Unmarshal([]byte(answer), &a) != nil {
		return nil, false, false
	}
	return a.Tables, a.More, true
}

func linesOfTables(tables []table, more bool) string {
	var b strings.Builder
	for _, t := range tables[:min(len(tables), MaxColumns)] {
		kind := "view"
		if t.Kind == "table" {
			kind = "table"
		}
		fmt.Fprintf(&b, "%s %s", kind, quoted(t.Name))
		if t.Rows >= 0 && kind == "table" {
			fmt.Fprintf(&b, ", %d rows", t.Rows)
		}
		if t.Error != "" {
			fmt.Fprintf(&b, ", cannot be read: %s", quoted(t.Error))
		}
		b.WriteString("\n")
		for _, c := range t.Columns[:min(len(t.Columns), MaxColumns)] {
			fmt.Fprintf(&b, "  column %s %s", quoted(c.Name), quoted(c.Type))
			if c.Key {
				b.WriteString(", primary key")
			}
			b.WriteString("\n")
		}
		for _, k := range t.Keys[:min(len(t.Keys), MaxColumns)] {
			fmt.Fprintf(&b, "  %s refers to %s of %s\n", quoted(k.From), quoted(k.To), quoted(k.Table))
		}
		for i, row := range t.First[:min(len(t.First), MaxRows)] {
			fmt.Fprintf(&b, "  row %d:", i+1)
			for _, cell := range row[:min(len(row), MaxColumns)] {
				b.WriteString(" " + quoted(cell))
			}
			b.WriteString("\n")
		}
	}
	if more {
		b.WriteString("and more tables\n")
	}
	return b.String()
}
