//go:build linux

package cubby_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/cubby-sandbox/cubby"
)

// Relative paths start in the home folder, which is also where code runs.
func ExampleSandbox_Files() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	files := sbx.Files()
	if err := files.Write(ctx, "notes/today.txt", strings.NewReader("buy milk\n"), 0); err != nil {
		log.Fatal(err)
	}
	if _, err := sbx.RunCode(ctx, "open('notes/today.txt', 'a').write('and bread\\n')"); err != nil {
		log.Fatal(err)
	}
	text, err := files.Read(ctx, "notes/today.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
	all, err := files.List(ctx, "notes", 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range all {
		fmt.Println(e.Path, e.Size, e.Mode)
	}
	_, err = files.Stat(ctx, "notes/tomorrow.txt")
	fmt.Println(errors.Is(err, fs.ErrNotExist), cubby.CodeOf(err))
	// Output:
	// buy milk
	// and bread
	// /home/user/notes/today.txt 19 -rw-r--r--
	// true not_found
}

// Folders are copied in and out. What comes out is the sandbox's: Download bounds it,
// and leaves nothing outside of the folder that it is given.
func ExampleFiles_Upload() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	here, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(here)
	if err := os.WriteFile(filepath.Join(here, "data.csv"), []byte("a,b\n1,2\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := sbx.Files().Upload(ctx, here, "input"); err != nil {
		log.Fatal(err)
	}
	if _, err := sbx.RunCode(ctx, "import os\nos.mkdir('output')\nopen('output/n', 'w').write(str(len(open('input/data.csv').read())))"); err != nil {
		log.Fatal(err)
	}
	if _, err := sbx.Files().Download(ctx, "output", filepath.Join(here, "output"), cubby.DownloadOptions{}); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(here, "output", "n"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text), "bytes")
	// Output: 8 bytes
}

// A folder is watched from the moment when Watch returns.
func ExampleFiles_Watch() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	w, err := sbx.Files().Watch(ctx, cubby.Home, cubby.WatchOptions{Recursive: true})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := sbx.Files().Write(ctx, "report.txt", strings.NewReader("done"), 0); err != nil {
		log.Fatal(err)
	}
	for e, err := range w.Events() {
		if err != nil {
			log.Fatal(err)
		}
		if e.Type == cubby.EventCreate {
			fmt.Println(e.Type, e.Name)
			break
		}
	}
	// Output: create report.txt
}
