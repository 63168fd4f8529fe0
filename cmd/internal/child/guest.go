package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestbin"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

// guestDir is where copyProgram mounts a file system, in the run folder.
const guestDir = "guest"

// unpackedDir is where the programs are unpacked if there is no cache, in the run folder:
// not that itself, whose lock the parent holds as long as the run lasts.
const unpackedDir = "unpacked"

// The programs' names.
const guestName, typeScriptName = "cubby-guest", "cubby-typescript"

// guestPrograms are the programs that the template shows to sandboxes.
type guestPrograms struct {
	guest, typescript string // paths
	files             []*packed.Located
}

// openGuestPrograms finds them where every user can execute them: their paths are ones of
// this process's descriptors if they can be, and what was judged is then what runs. The
// files are to be kept open as long as sandboxes start: their locks keep other versions of
// Cubby from removing them. Close is called in any case.
func openGuestPrograms(ctx context.Context, runDir string) (g guestPrograms, err error) {
	for _, program := range []struct {
		name string
		open func(context.Context, string) (*packed.Located, error)
		path *string
	}{
		{guestName, guestbin.Open, &g.guest},
		{typeScriptName, guestbin.OpenTypeScript, &g.typescript},
	} {
		file, err := program.open(ctx, filepath.Join(runDir, unpackedDir))
		if err != nil {
			return g, err
		}
		g.files = append(g.files, file)
		if *program.path, err = everybodys(file, filepath.Join(runDir, guestDir), program.name); err != nil {
			return g, fmt.Errorf("%s: %s cannot be executed there, and not be copied: %w", program.name, file.Path, err)
		}
	}
	return g, nil
}

// Close lets other versions remove the files.
func (g guestPrograms) Close() error {
	var errs []error
	for _, file := range g.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// everybodys returns a path by which every user can execute a program. Neither the user's
// cache nor the run folder need be a place for that: a file system may be mounted noexec,
// which holds for what is bound from there, too. Then the program is copied to a small
// tmpfs of this process, at dir, under that name.
func everybodys(program *packed.Located, dir, name string) (string, error) {
	info, err := program.File.Stat()
	if err != nil {
		return "", err
	}
	const execute = 0o005 // by others, whose kernel reads it, too
	// A memory file is in no mount that could be bound.
	if info.Mode()&execute == execute && program.From != packed.FromMemory && !ready.NoExec(int(program.File.Fd())) {
		return fmt.Sprintf("/proc/self/fd/%d", program.File.Fd()), nil
	}
	return copyProgram(program.File, dir, name)
}

func copyProgram(from io.ReadSeeker, dir, name string) (copied string, err error) {
	switch err := os.Mkdir(dir, 0o711); {
	case err == nil:
		if err := unix.Mount("cubby", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256m,nr_inodes=16,mode=711"); err != nil {
			return "", os.NewSyscallError("mount", err)
		}
	case !errors.Is(err, fs.ErrExist): // or it was made for the program before
		return "", err
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	copied = filepath.Join(dir, name)
	to, err := os.OpenFile(copied, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	} else {
		to.Close()
	}
	return copied, err
}
