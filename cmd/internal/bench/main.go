//go:build linux

// Command bench compares Cubby with a bare start of the same interpreter, side
// by side in one run: `make bench`. With -serve it compares requests, streams and
// idle connections through the server with those that go without it, with -net what
// sandboxes connect to with what the host does, and with -life pauses, resumes and forks
// with bare starts; these fail if a goal is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
)

func main() {
	binary := flag.String("cubby", "bin/cubby", "the binary to measure")
	python := flag.String("python", "/usr/bin/python3", "the interpreter, bare and in sandboxes")
	n := flag.Int("n", 40, "rounds; each measures every row once, in turn")
	serve := flag.Bool("serve", false, "measure the server instead; rounds are 50 n")
	network := flag.Bool("net", false, "measure sandboxes' network instead; rounds are a fifth of n")
	life := flag.Bool("life", false, "measure pauses, resumes and forks instead; rounds are half of n")
	if name := os.Getenv(roleVar); name != "" {
		if err := role(name); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", name+":", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if *serve {
		if err := serveBench(*binary, 50**n, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *network {
		if err := netBench(context.Background(), *binary, *python, max(1, *n/5), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *life {
		if err := lifeBench(context.Background(), *binary, *python, max(1, *n/2), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(context.Background(), *binary, *python, *n, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// row is one thing that is measured; the first row is what others are compared
// with.
type row struct {
	name    string
	measure func() error
	times   []time.Duration
}

func run(ctx context.Context, binary, python string, n int, out io.Writer) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	c, err := embedded.Open(ctx, embedded.Config{Binary: binary, Python: python})
	if err != nil {
		return err
	}
	defer c.Close()
	live, err := c.Create(ctx)
	if err != nil {
		return err
	}
	if _, err := live.RunCode(ctx, "print(1)"); err != nil {
		return err
	}
	const code = "print(1)"
	rows := []*row{
		{name: "bare " + python + " -c 'print(1)'", measure: command(ctx, python, "-c", code)},
		{name: "cubby run -e 'print(1)', whole process", measure: command(ctx, binary, "run", "--python", python, "-e", code)},
		{name: "create, first RunCode, kill in a running Cubby", measure: func() error { return fresh(ctx, c, code) }},
		{name: "RunCode in a live sandbox, after a pause", measure: func() error { return expect(live.RunCode(ctx, code)) }},
		{name: "a second RunCode in it", measure: func() error { return expect(live.RunCode(ctx, code)) }},
	}
	for i := range n + 2 {
		for _, r := range rows {
			start := time.Now()
			if err := r.measure(); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if i >= 2 { // the first rounds fill caches
				r.times = append(r.times, time.Since(start))
			}
		}
	}
	base := median(rows[0].times)
	fmt.Fprintf(out, "%-48s %9s %9s %9s %9s   (n=%d)\n", "", "min", "median", "p95", "ratio", n)
	for _, r := range rows {
		slices.Sort(r.times)
		fmt.Fprintf(out, "%-48s %7.2fms %7.2fms %7.2fms %8.2fx\n", r.name, ms(r.times[0]), ms(median(r.times)),
			ms(r.times[len(r.times)*95/100]), float64(median(r.times))/float64(base))
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) func() error {
	return func() error {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err == nil && string(out) != "1\n" {
			err = fmt.Errorf("printed %q", out)
		}
		return err
	}
}

func fresh(ctx context.Context, c *embedded.Cubby, code string) error {
	sbx, err := c.Create(ctx)
	if err != nil {
		return err
	}
	if err := expect(sbx.RunCode(ctx, code)); err != nil {
		return err
	}
	return sbx.Kill(ctx)
}

func expect(ex *cubby.Execution, err error) error {
	if err == nil && ex.Stdout != "1\n" {
		err = fmt.Errorf("printed %q", ex.Stdout)
	}
	return err
}

// goals says of numbers whether they are as good as they must be.
type goals struct {
	out    io.Writer
	missed error
}

// goal is missed by a value above the bound, or with least by one below it.
func (g *goals) goal(name string, value, bound float64, least bool) {
	ok := value <= bound
	sign := "at most"
	if least {
		ok, sign = value >= bound, "at least"
	}
	verdict := "ok"
	if !ok {
		verdict = "MISSED"
		g.missed = errors.Join(g.missed, fmt.Errorf("%s: %.3f, %s %.3f", name, value, sign, bound))
	}
	fmt.Fprintf(g.out, "%-52s %9.3f  (%s %.3f) %s\n", name, value, sign, bound, verdict)
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
