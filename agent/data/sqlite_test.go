//go:build linux

package data_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent/data"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A database is described by the sandbox's Python.
func TestSQLite(t *testing.T) {
	testenv.CheckLeaks(t)
	ex, err := sandbox.New(t.Context(), sandbox.Config{Embedded: embedded.Config{Binary: testenv.Cubby(t), Python: "/usr/bin/python3"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ex.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s, err := data.File(t.Context(), ex, "testdata/shop.db") // made of shop.sql
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`table "customer", 2 rows`, `column "id" "INTEGER", primary key`, `row 2: "2" "line\nbreak"`,
		`table "or\"der", 0 rows`, `"customer" refers to "id" of "customer"`, `view "big"`,
	} {
		if !strings.Contains(s.Description, want) {
			t.Errorf("no %s in:\n%s", want, s.Description)
		}
	}
	broken := append([]byte(nil), s.File.Content...)
	for i := 100; i < len(broken); i++ {
		broken[i] = 0xff
	}
	s, err = data.SQLite(t.Context(), ex, "broken.db", broken)
	if err != nil || !strings.Contains(s.Description, "Look at its tables") {
		t.Errorf("a broken one: %s, %v", s.Description, err)
	}
}
