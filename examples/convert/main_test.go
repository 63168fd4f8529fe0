//go:build linux

package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/cubby-sandbox/cubby/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestScripted(t *testing.T) {
	out, dir := exampletest.Scripted(t, "examples/convert/script.yaml", run)
	if !strings.Contains(out, "Both files hold all 1461 rows") {
		t.Errorf("the answer:\n%s", out)
	}
	check(t, dir)
}

func TestReal(t *testing.T) {
	_, dir := exampletest.Real(t, run)
	check(t, dir)
}

// check reads both files without Python.
func check(t *testing.T, dir string) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(exampletest.Read(t, dir, "weather.jsonl")), []byte("\n"))
	rain := 0.0
	for _, line := range lines {
		var day struct {
			Date          string
			Precipitation float64
		}
		if err := json.Unmarshal(line, &day); err != nil || len(day.Date) < 10 {
			t.Fatalf("%s: %v", line, err)
		}
		rain += day.Precipitation
	}
	if len(lines) != 1461 || math.Abs(rain-4426) > 0.01 {
		t.Errorf("JSON Lines: %d rows with %f mm", len(lines), rain)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "weather.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	var hottest float64
	row := db.QueryRowContext(t.Context(), "SELECT count(*), sum(precipitation), max(temp_max) FROM weather")
	if err := row.Scan(&n, &rain, &hottest); err != nil {
		t.Fatal(err)
	}
	if n != 1461 || math.Abs(rain-4426) > 0.01 || hottest != 35.6 {
		t.Errorf("SQLite: %d rows with %f mm, hottest %f", n, rain, hottest)
	}
}
