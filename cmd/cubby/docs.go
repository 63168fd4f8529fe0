//go:build cubby_docs

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/cubby-sandbox/cubby/internal/version"
)

// main of this build writes the command's manual pages and shell completions
// below the folder given: `go run -tags cubby_docs ./cmd/cubby FOLDER`. The date in
// the pages is SOURCE_DATE_EPOCH.
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run -tags cubby_docs ./cmd/cubby FOLDER")
		os.Exit(2)
	}
	if err := writeDocs(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writeDocs(dir string) error {
	program := newEngineProgram()
	root := newRoot(stdio{strings.NewReader(""), io.Discard, io.Discard}, openEmbedded(program), program)
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	date := time.Unix(0, 0)
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(seconds, 0)
	}
	date = date.UTC()
	pages := filepath.Join(dir, "share/man/man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Source: "Cubby " + version.Version, Manual: "Cubby", Date: &date}
	if err := doc.GenManTree(root, header, pages); err != nil {
		return err
	}
	for name, generate := range map[string]func(io.Writer) error{
		"share/bash-completion/completions/cubby":    func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"share/zsh/site-functions/_cubby":            root.GenZshCompletion,
		"share/fish/vendor_completions.d/cubby.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		if err := writeTo(filepath.Join(dir, name), generate); err != nil {
			return err
		}
	}
	return nil
}

func writeTo(name string, generate func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = generate(f)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
