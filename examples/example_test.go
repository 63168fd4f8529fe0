//go:build linux

// Package examples shows the library at work. Each example is a program of its
// own; `go test ./examples` runs them all.
package examples

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestMain builds the cubby that the examples start; a program of yours finds
// an installed one on PATH.
func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		log.Fatal(err)
	}
	os.Setenv("CUBBY_PYTHON", "/usr/bin/python3")
	os.Exit(m.Run())
}

// A sandbox of a private Cubby; the end of the program ends it, too.
func Example() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, "print(6*7)")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(ex.Stdout)
	// Output: 42
}

// Variables last from call to call; an error of the code is part of the answer.
func Example_state() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, code := range []string{"x = 41", "x + 1", "x / 0"} {
		ex, err := sbx.RunCode(ctx, code)
		if err != nil {
			log.Fatal(err) // not the code: the sandbox
		}
		fmt.Println(ex.Text(), ex.Error != nil, ex.ExitCode)
	}
	// Output:
	//  false 0
	// 42 false 0
	//  true 1
}

// Output is there as it is printed, and bounded, as time is.
func Example_streaming() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, "for i in 1 2 3; do echo $i; sleep 0.1; done; sleep 60",
		cubby.WithLanguage("bash"),
		cubby.WithTimeout(time.Second),
		cubby.OnStdout(func(text string) { fmt.Print("got ", text) }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("timed out:", ex.TimedOut, ex.ExitCode)
	// Output:
	// got 1
	// got 2
	// got 3
	// timed out: true 124
}

// Files go in and come out; the analysis is the one that `make demo` runs.
func Example_files() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx, cubby.WithLimits(cubby.Limits{Memory: 256 << 20}))
	if err != nil {
		log.Fatal(err)
	}
	if err := sbx.Files().Upload(ctx, "weather/seattle-weather.csv", "seattle-weather.csv"); err != nil {
		log.Fatal(err)
	}
	code, err := os.ReadFile("weather/analysis.py")
	if err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, string(code))
	if err != nil {
		log.Fatal(err)
	}
	first, _, _ := strings.Cut(ex.Stdout, "\n")
	fmt.Println(first)
	for _, r := range ex.Results {
		fmt.Println("table:", r.HTML != "", "chart:", r.SVG != "")
	}
	out, err := os.MkdirTemp("", "example-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(out)
	done, err := sbx.Files().Download(ctx, cubby.Home, out, cubby.DownloadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range done.Files {
		fmt.Println(filepath.Base(f.Path))
	}
	// Output:
	// 1461 days, 2012-01-01 to 2015-12-31
	// table: true chart: false
	// table: false chart: true
	// months.csv
	// seattle-weather.csv
}

// Each context is a kernel with variables of its own.
func Example_contexts() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, code := range []string{"x = 1", "'x' in globals()"} {
		kernel, err := sbx.CreateContext(ctx, "python")
		if err != nil {
			log.Fatal(err)
		}
		ex, err := sbx.RunCode(ctx, code, cubby.InContext(kernel))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q\n", ex.Text())
	}
	// Output:
	// ""
	// "False"
}
