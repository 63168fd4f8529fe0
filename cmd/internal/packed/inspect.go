//go:build linux

package packed

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

// Report is what can be told of a program that was found.
func (p Program) Report(l *Located) Report {
	r := Report{Name: p.Name, SHA256: p.SHA256, Size: p.Size, Path: l.Path, From: l.From}
	for _, passed := range l.Passed {
		r.Passed = append(r.Passed, ReportPassed{passed.From, passed.Path, passed.Err.Error()})
	}
	return r
}

// Verify computes the hash of a program that was found, whatever notes say, and writes
// into the report what is wrong with it.
func (p Program) Verify(ctx context.Context, l *Located) (Report, error) {
	r := p.Report(l)
	f := ready.File{Path: l.Path, FD: int(l.File.Fd())}
	if err := syscall.Fstat(f.FD, &f.Stat); err != nil {
		return r, os.NewSyscallError("fstat", err)
	}
	sum, err := hash(ctx, f)
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err != nil:
		r.Problem = "it cannot be read: " + err.Error()
	case sum != p.SHA256:
		r.Problem = "its SHA-256 is " + sum + ", not " + p.SHA256 + ": it was damaged after it had been checked; remove it"
	}
	return r, nil
}

// Write writes the program into a folder, with its plain name and mode 0555, as packages
// ship it. What has that name is replaced.
func (p Program) Write(ctx context.Context, dir string) (_ Report, err error) {
	path := filepath.Join(dir, p.Name)
	aside := filepath.Join(dir, "."+p.Name+"."+rand.Text()[:8]+asideSuffix)
	file, err := os.OpenFile(aside, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		file.Close()
		if err != nil {
			os.Remove(aside)
		}
	}()
	if err := p.decompress(ctx, file); err != nil {
		return Report{}, err
	}
	if err := errors.Join(file.Chmod(ready.Mode), file.Sync()); err != nil {
		return Report{}, err
	}
	// As it was written, and not only as it was meant.
	r, err := p.Verify(ctx, &Located{File: file, Path: path})
	if err != nil {
		return Report{}, err
	}
	if r.Problem != "" {
		return Report{}, fmt.Errorf("%s: %s", aside, r.Problem)
	}
	return r, os.Rename(aside, path)
}

// Argument is the first one of a process that is to call Serve: it tells of the programs
// that are packed in the one that is packed here.
const Argument = "engine-programs"

// What Serve is asked for, as the second argument.
const (
	AskPath   = "path"
	AskVerify = "verify"
	AskUnpack = "unpack" // the third is the folder
)

// Serve answers for programs on out: a JSON array of Report.
func Serve(ctx context.Context, args []string, programs []Program, out io.Writer) error {
	reports := []Report{}
	for _, p := range programs {
		r, err := p.answer(ctx, args)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	return json.NewEncoder(out).Encode(reports)
}

func (p Program) answer(ctx context.Context, args []string) (Report, error) {
	switch {
	case len(args) == 2 && args[0] == AskUnpack:
		return p.Write(ctx, args[1])
	case len(args) == 1 && (args[0] == AskPath || args[0] == AskVerify):
		l, err := Open(ctx, p, Options{})
		if err != nil {
			return Report{}, err
		}
		defer l.Close()
		if args[0] == AskVerify {
			return p.Verify(ctx, l)
		}
		return p.Report(l), nil
	}
	return Report{}, fmt.Errorf("unknown question %q", args)
}

// Ask runs a program that was found and asks it of those that are packed in it.
func Ask(ctx context.Context, l *Located, question ...string) ([]Report, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", append([]string{Argument}, question...)...)
	cmd.ExtraFiles = []*os.File{l.File}
	cmd.Stderr = &bytes.Buffer{}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s of what it carries: %w: %s", l.Path, err, bytes.TrimSpace(cmd.Stderr.(*bytes.Buffer).Bytes()))
	}
	var reports []Report
	if err := json.Unmarshal(out, &reports); err != nil {
		return nil, fmt.Errorf("ask %s of what it carries: %w", l.Path, err)
	}
	return reports, nil
}
