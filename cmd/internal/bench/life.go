//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby"
)

const (
	// gigabyteRounds is how often each gigabyte is paused and resumed.
	gigabyteRounds = 3
	// copiesAtOnce are those of the fork that says what each further copy costs.
	copiesAtOnce = 5
	// pausedSandboxes are those whose memory and disk are measured together.
	pausedSandboxes = 10
	// bareBeside is how often bare Python is measured beside each gigabyte.
	bareBeside = 5
)

// Goals: starts of bare Python, or seconds for a GiB.
const (
	maxResume    = 7.0
	maxFork      = 9.0
	maxCopy      = 6.0
	maxPauseGiB  = 4.0
	maxResumeGiB = 1.5
	maxPausedMB  = 0.25 // of the server's memory; what it knows of a sandbox
)

// A gigabyte that cannot be compressed, in memory and in files.
const (
	numpyLoaded    = "import numpy; print(1)"
	firstResult    = "print(int(numpy.ones(1)[0]))"
	gigabyteInside = "import os; kept = b''.join(os.urandom(1 << 24) for _ in range(64)); print(1)"
	gigabyteOfFile = `
import os
os.makedirs("/home/user/gigabyte")
for i in range(64):
    with open(f"/home/user/gigabyte/{i}", "wb") as f: f.write(os.urandom(1 << 24))
print(1)`
)

// lifeServer is a cubby serve with records, keys and images in a folder of its own: what
// it keeps is synced, as anybody's server does.
type lifeServer struct {
	*cubby.Client
	cmd  *exec.Cmd
	data string
}

func startLifeServer(ctx context.Context, binary, python, dir string) (*lifeServer, error) {
	s := &lifeServer{data: filepath.Join(dir, "data")}
	s.cmd = exec.CommandContext(ctx, binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", s.data, "--python", python, "--log-level", "warn")
	s.cmd.Env = append(os.Environ(), "HOME="+dir)
	s.cmd.Stderr = os.Stderr
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(unix.SIGTERM) }
	s.cmd.WaitDelay = 30 * time.Second
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	var cfg cubby.Config
	for lines := bufio.NewScanner(stdout); cfg.APIKey == "" && lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		switch strings.TrimSpace(name) {
		case "export E2B_API_URL":
			cfg.APIURL = value
		case "export E2B_API_KEY":
			cfg.APIKey, _, _ = strings.Cut(value, " ")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	if cfg.APIKey == "" {
		return nil, errors.Join(errors.New("the server did not print its API key"), s.stop())
	}
	if s.Client, err = cubby.NewClient(cfg); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *lifeServer) stop() error {
	err := s.cmd.Process.Signal(unix.SIGTERM)
	return errors.Join(err, s.cmd.Wait())
}

// onDisk is what the server's images take, in bytes.
func (s *lifeServer) onDisk() (bytes int64, err error) {
	err = filepath.WalkDir(filepath.Join(s.data, "images"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		bytes += st.Blocks * 512
		return nil
	})
	return bytes, err
}

// written is how many bytes the disk of the images has written since the system's start,
// for whomever; zero where the kernel does not say.
func (s *lifeServer) written() (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(s.data, &st); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 7 {
		return 0, errors.Join(err, errors.New("the disk does not say what was written"))
	}
	sectors, err := strconv.ParseInt(fields[6], 10, 64)
	return sectors * 512, err
}

// processes counts those of the server, and adds up their private memory, in MB.
func (s *lifeServer) processes() (n int, mb float64, err error) {
	all := append(children(s.cmd.Process.Pid), s.cmd.Process.Pid)
	for _, pid := range all {
		kb, err := private(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, 0, err
		}
		n++
		mb += kb / 1024
	}
	return n, mb, nil
}

// lifeBench measures pauses, resumes and forks, and fails if a goal is missed.
func lifeBench(ctx context.Context, binary, python string, rounds int, out io.Writer) (err error) {
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-life-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // gVisor's processes are other users
		return err
	}
	s, err := startLifeServer(ctx, binary, python, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	b := &lifeRun{lifeServer: s, python: python, numbers: map[string]*numbers{}}
	if err := b.numpy(ctx, rounds); err != nil {
		return fmt.Errorf("with numpy: %w", err)
	}
	idle, err := b.paused(ctx)
	if err != nil {
		return fmt.Errorf("paused sandboxes: %w", err)
	}
	var again int64
	for _, kind := range []struct{ name, code string }{{"memory", gigabyteInside}, {"files", gigabyteOfFile}} {
		if again, err = b.gigabyte(ctx, kind.name, kind.code); err != nil {
			return fmt.Errorf("a gigabyte of %s: %w", kind.name, err)
		}
	}
	fmt.Fprintf(out, "%-44s %9s %9s %9s   (rounds: %d, of a gigabyte %d)\n", "ms", "p5", "median", "p95", rounds, gigabyteRounds)
	for _, r := range b.order {
		fmt.Fprintf(out, "%-44s %9.1f %9.1f %9.1f\n", r.name, r.at(0.05), r.at(0.5), r.at(0.95))
	}
	fmt.Fprintf(out, "%-44s %9.1f MB\n", "disk, a paused sandbox with numpy loaded", idle.diskMB)
	fmt.Fprintf(out, "%-44s %9.1f MB\n", "written, a pause of an unchanged gigabyte", float64(again)/(1<<20))
	g := &goals{out: out}
	bare := b.median("bare Python")
	g.goal("resume with numpy to first result / bare Python", b.median(rowResume)/bare, maxResume, false)
	g.goal("fork of it to first result in the copy / bare", b.median(rowFork)/bare, maxFork, false)
	g.goal("each further copy of that fork / bare", b.median(rowFurther)/bare, maxCopy, false)
	for _, kind := range []string{"memory", "files"} {
		g.goal("pause, seconds for a GiB of "+kind, b.median("pause, 1 GiB of "+kind)/1000, maxPauseGiB, false)
		g.goal("resume to first result, seconds for a GiB of "+kind, b.median("resume, 1 GiB of "+kind)/1000, maxResumeGiB, false)
	}
	g.goal("processes of a paused sandbox", idle.processes, 0, false)
	g.goal("memory of a paused sandbox, MB in the server", idle.memoryMB, maxPausedMB, false)
	return g.missed
}

// lifeRun has what was measured, in milliseconds.
type lifeRun struct {
	*lifeServer
	python  string
	numbers map[string]*numbers
	order   []*numbers
}

const (
	rowResume  = "resume with numpy loaded, first result"
	rowFork    = "fork of it, first result in the copy"
	rowFurther = "  each further copy of that fork"
)

func (b *lifeRun) add(name string, value float64) {
	if b.numbers[name] == nil {
		b.numbers[name] = &numbers{name: name}
		b.order = append(b.order, b.numbers[name])
	}
	b.numbers[name].all = append(b.numbers[name].all, value)
}

func (b *lifeRun) median(name string) float64 { return b.numbers[name].at(0.5) }

// time measures one call; that of the first rounds is not kept.
func (b *lifeRun) time(name string, keep bool, call func() error) (float64, error) {
	took, err := timed(call)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if keep {
		b.add(name, took[0])
	}
	return took[0], nil
}

func (b *lifeRun) bare(ctx context.Context, keep bool) error {
	_, err := b.time("bare Python", keep, command(ctx, b.python, "-c", "print(1)"))
	return err
}

// numpy pauses, resumes and forks a sandbox with numpy loaded, in turn with bare Python.
func (b *lifeRun) numpy(ctx context.Context, rounds int) error {
	sbx, err := b.Create(ctx, cubby.WithTimeout(time.Hour))
	if err != nil {
		return err
	}
	if err := expect(sbx.RunCode(ctx, numpyLoaded)); err != nil {
		return err
	}
	fork := func(n int) (copies []*cubby.Sandbox, err error) {
		copies, err = sbx.Fork(ctx, n)
		results := make(chan error, len(copies))
		for _, c := range copies {
			go func() { results <- expect(c.RunCode(ctx, firstResult)) }()
		}
		for range copies {
			err = errors.Join(err, <-results)
		}
		return copies, err
	}
	for i := range rounds + 2 {
		keep := i >= 2 // the first rounds fill caches
		if err := b.bare(ctx, keep); err != nil {
			return err
		}
		if _, err := b.time("pause with numpy loaded", keep, func() error { return sbx.Pause(ctx) }); err != nil {
			return err
		}
		if _, err := b.time(rowResume, keep, func() error {
			if sbx, err = b.Connect(ctx, sbx.ID(), cubby.WithTimeout(time.Hour)); err != nil {
				return err
			}
			return expect(sbx.RunCode(ctx, firstResult))
		}); err != nil {
			return err
		}
		var took [2]float64
		for j, n := range []int{1, copiesAtOnce} {
			var copies []*cubby.Sandbox
			name := rowFork
			if n > 1 {
				name = fmt.Sprintf("fork(%d) of it, first result in all", n)
			}
			took[j], err = b.time(name, keep, func() (err error) { copies, err = fork(n); return err })
			for _, c := range copies {
				err = errors.Join(err, c.Kill(ctx))
			}
			if err != nil {
				return err
			}
		}
		if keep {
			b.add(rowFurther, (took[1]-took[0])/(copiesAtOnce-1))
		}
	}
	return sbx.Kill(ctx)
}

// cost is what a paused sandbox takes.
type cost struct{ processes, memoryMB, diskMB float64 }

// paused measures what sandboxes take that are paused.
func (b *lifeRun) paused(ctx context.Context) (c cost, err error) {
	n0, mb0, err := b.processes()
	if err != nil {
		return c, err
	}
	disk0, err := b.onDisk()
	if err != nil {
		return c, err
	}
	all := make([]*cubby.Sandbox, pausedSandboxes)
	for i := range all {
		if all[i], err = b.Create(ctx); err != nil {
			return c, err
		}
		if err := expect(all[i].RunCode(ctx, numpyLoaded)); err != nil {
			return c, err
		}
		if err := all[i].Pause(ctx); err != nil {
			return c, err
		}
	}
	n1, mb1, err := b.processes()
	if err != nil {
		return c, err
	}
	disk1, err := b.onDisk()
	for _, sbx := range all {
		err = errors.Join(err, sbx.Kill(ctx))
	}
	return cost{
		float64(n1-n0) / pausedSandboxes, max(0, mb1-mb0) / pausedSandboxes, float64(disk1-disk0) / pausedSandboxes / (1 << 20),
	}, err
}

// gigabyte pauses and resumes a sandbox with a gigabyte of something. again is what the
// images take on disk more by its last pause than by the one before, between which nothing
// changed.
func (b *lifeRun) gigabyte(ctx context.Context, kind, code string) (again int64, err error) {
	sbx, err := b.Create(ctx, cubby.WithTimeout(time.Hour), cubby.WithLimits(cubby.Limits{Memory: 3 << 30, Disk: 3 << 30}))
	if err != nil {
		return 0, err
	}
	if err := expect(sbx.RunCode(ctx, code, cubby.WithTimeout(5*time.Minute))); err != nil {
		return 0, err
	}
	for range gigabyteRounds {
		for range bareBeside {
			if err := b.bare(ctx, true); err != nil {
				return 0, err
			}
		}
		before, err := b.written()
		if err != nil {
			return 0, err
		}
		if _, err := b.time("pause, 1 GiB of "+kind, true, func() error { return sbx.Pause(ctx) }); err != nil {
			return 0, err
		}
		after, err := b.written()
		if err != nil {
			return 0, err
		}
		again = after - before
		if _, err := b.time("resume, 1 GiB of "+kind, true, func() error {
			if sbx, err = b.Connect(ctx, sbx.ID(), cubby.WithTimeout(time.Hour)); err != nil {
				return err
			}
			return expect(sbx.RunCode(ctx, "print(1)"))
		}); err != nil {
			return 0, err
		}
	}
	return again, sbx.Kill(ctx)
}
