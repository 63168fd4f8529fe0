//go:build linux

package packed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Program is a program that is packed in the running one. Command pack makes what it is
// made of.
type Program struct {
	Name   string // of its file, such as "cubby-engine"
	SHA256 string // of the program, in lower-case hex
	Size   int64  // of the program, in bytes
	Zstd   []byte // the program, compressed
	// Variable of the environment may name the program's file; empty for none.
	Variable string
}

// New is a Program of the two files that command pack writes. It panics if they are not
// such ones: they are part of the running program.
func New(name, sum string, zstd []byte, variable string) Program {
	hash, size, ok := ready.ParseSum(sum)
	if !ok {
		panic("packed: " + name + ": not a sum: " + sum)
	}
	return Program{Name: name, SHA256: hash, Size: size, Zstd: zstd, Variable: variable}
}

// Want is what package ready looks for.
func (p Program) Want() ready.Want {
	return ready.Want{Name: p.Name, SHA256: p.SHA256, Size: p.Size, Variable: p.Variable}
}

// Options say where to look. The zero value looks wherever the running program does.
type Options struct {
	// RunDir is a folder of this run, for unpacked programs only, which its owner removes.
	// It is made if only that one is missing; empty for none.
	RunDir string
	// TempDir is the folder for temporary files, where the program is unpacked to a file
	// without a name; empty for none.
	TempDir string
	// Anew has the program unpacked for the caller alone, to a file without a name:
	// nothing that is there already is looked at, and nothing is kept.
	Anew bool
	// place is for tests, instead of the running program's surroundings.
	place *ready.Place
}

// PassedOver is a place that came first and was not taken.
type PassedOver struct {
	From From
	Path string
	Err  error
}

// Located is a program that is ready to be run. Close it when it is not needed any more.
type Located struct {
	// File is open for reading and close-on-exec, and has a shared lock. Run it by
	// /proc/self/fd/N or package ready's Exec: a path could lead to another file by then.
	File   *os.File
	Path   string // for people; of no file if From is FromMemory
	From   From
	Passed []PassedOver
}

// Close closes the file, and so lets go of its lock.
func (l *Located) Close() error { return l.File.Close() }

// Open provides the program: from the file that the environment names, which must fit;
// from beside the running program; from the cache or the run folder, where it is unpacked
// if need be; or from a file without a name, on disk or in memory. Its errors are *fault.Error, or ctx's.
func Open(ctx context.Context, p Program, opts Options) (*Located, error) {
	place := ready.Surroundings(p.Variable)
	if opts.place != nil {
		place = *opts.place
	}
	if opts.Anew {
		place = ready.Place{}
	}
	o := opener{program: p, want: p.Want(), place: place, notes: ready.NotesIn(place.Cache)}
	if place.Explicit != "" {
		return o.explicit(ctx)
	}
	for _, dir := range place.Beside {
		if found := o.beside(ctx, dir); found != nil {
			return found, nil
		}
	}
	return o.each(ctx, opts)
}

// each unpacks the program to the first place that will do, for all starts or for one.
func (o *opener) each(ctx context.Context, opts Options) (*Located, error) {
	type place struct {
		from From
		dir  string
		open func() (*Located, error)
	}
	places := []place{{FromCache, o.place.Cache, func() (*Located, error) { return o.unpacked(ctx, FromCache, o.place.Cache) }}}
	if opts.RunDir != "" {
		places = append(places, place{FromRunDir, opts.RunDir, func() (*Located, error) { return o.unpacked(ctx, FromRunDir, opts.RunDir) }})
	}
	if opts.TempDir != "" {
		places = append(places, place{FromTemporary, opts.TempDir, func() (*Located, error) { return o.temporary(ctx, opts.TempDir) }})
	}
	places = append(places, place{FromMemory, "", func() (*Located, error) { return o.memory(ctx) }})
	for _, p := range places {
		found, err := p.open()
		if err == nil {
			return found, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		o.pass(p.from, p.dir, err)
	}
	return nil, o.nowhere()
}

// opener is one call of Open.
type opener struct {
	program Program
	want    ready.Want
	place   ready.Place
	notes   *ready.Notes
	passed  []PassedOver
}

func (o *opener) pass(from From, path string, err error) {
	o.passed = append(o.passed, PassedOver{from, path, err})
}

func (o *opener) nowhere() error {
	var why []string
	for _, p := range o.passed {
		text := p.Err.Error()
		if p.Path != "" && !strings.Contains(text, p.Path) {
			text = p.Path + ": " + text
		}
		why = append(why, string(p.From)+": "+text)
	}
	return &fault.Error{
		Code: fault.Unavailable,
		Err:  fmt.Errorf("%s, which is packed in this program, cannot be unpacked anywhere: %s", o.program.Name, strings.Join(why, "; ")),
		Hint: "give it a folder that only root or this user may write and from which programs can be run: " +
			"XDG_CACHE_HOME names the cache, TMPDIR the folder for temporary files",
	}
}

// found takes over the file.
func (o *opener) found(f ready.File, from From) *Located {
	syscall.Close(f.Dir)
	ready.Lock(f.FD)
	return &Located{File: os.NewFile(uintptr(f.FD), f.Path), Path: f.Path, From: from, Passed: o.passed}
}

// explicit takes the file that the environment names, or fails.
func (o *opener) explicit(ctx context.Context) (*Located, error) {
	path := o.place.Explicit
	f, err := ready.OpenPath(path)
	if err == nil {
		if err = o.check(ctx, f, true); err == nil {
			return o.found(f, FromVariable), nil
		}
		f.Close()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, &fault.Error{
		Code: fault.Unavailable,
		Err:  fmt.Errorf("%s does not name the %s of this program: %w", o.program.Variable, o.program.Name, err),
		Hint: "unset " + o.program.Variable + ", or write the one that is packed in this program with `cubby engine unpack DIR`",
	}
}

// beside takes the file with the program's plain name in a folder; nil if it does not fit.
func (o *opener) beside(ctx context.Context, dir string) *Located {
	path := filepath.Join(dir, o.want.Name)
	if !ready.Exists(path) {
		return nil
	}
	f, err := ready.OpenIn(dir, o.want.Name)
	if err == nil {
		if err = o.check(ctx, f, true); err == nil {
			return o.found(f, FromBeside)
		}
		f.Close()
	}
	o.pass(FromBeside, path, err)
	return nil
}

var errOtherBuild = errors.New("it is of another build")

// check judges a file that is open, by its note or by its hash. With note set what the
// hash says is noted in the cache, if there is one.
func (o *opener) check(ctx context.Context, f ready.File, note bool) error {
	if err := o.want.Judge(f); err != nil {
		return err
	}
	sum := o.notes.Sum(f)
	if sum == "" {
		var err error
		if sum, err = hash(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if note {
			o.noteInCache(f, sum)
		}
	}
	if sum != o.want.SHA256 {
		return fmt.Errorf("%s: %w: SHA-256 %s, not %s", f.Path, errOtherBuild, sum, o.want.SHA256)
	}
	return nil
}

// hash reads the whole file.
func hash(ctx context.Context, f ready.File) (string, error) {
	sum := sha256.New()
	// A file that grows meanwhile is another one than was judged.
	if n, err := io.Copy(sum, io.NewSectionReader(reader{ctx, f.FD}, 0, f.Stat.Size)); err != nil {
		return "", err
	} else if n != f.Stat.Size {
		return "", io.ErrUnexpectedEOF
	}
	var now syscall.Stat_t
	if err := syscall.Fstat(f.FD, &now); err != nil {
		return "", err
	}
	if ready.Key(&now) != ready.Key(&f.Stat) {
		return "", errors.New("it was changed while it was read")
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// reader reads a descriptor until its context has ended.
type reader struct {
	ctx context.Context
	fd  int
}

func (r reader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := syscall.Pread(r.fd, p, off)
	switch {
	case err == syscall.EINTR:
		return r.ReadAt(p, off)
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
