package main

import (
	"context"
	"database/sql"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// build makes a database at path, anew, with the table jobs of a CSV file.
func build(ctx context.Context, path, source string) (err error) {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := db.Close(); err == nil {
			err = closed
		}
	}()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing after Commit
	names := rows[0]
	columns := fmt.Sprintf("%s TEXT PRIMARY KEY, %s NUMERIC", names[0], strings.Join(names[1:], " NUMERIC, "))
	if _, err := tx.ExecContext(ctx, "CREATE TABLE jobs ("+columns+")"); err != nil {
		return err
	}
	insert := "INSERT INTO jobs VALUES (?" + strings.Repeat(", ?", len(names)-1) + ")"
	for _, row := range rows[1:] {
		values := make([]any, len(row))
		for i, v := range row {
			values[i] = v
		}
		if _, err := tx.ExecContext(ctx, insert, values...); err != nil {
			return err
		}
	}
	return tx.Commit()
}
