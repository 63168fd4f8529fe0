package cubby

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Upload copies a local file or folder to remote in the sandbox. Modes and
// empty folders travel. Symbolic links inside a folder are resolved, and must
// lead to something inside it; devices, pipes and sockets are refused. The
// check is made before anything is sent.
func (f Files) Upload(ctx context.Context, local, remote string) error {
	const op = "upload"
	plan, root, err := planUpload(local, inHome(remote))
	if err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	defer root.Close()
	for _, item := range plan {
		if err := f.uploadOne(ctx, root, item); err != nil {
			return fail(op, CodeUnavailable, err)
		}
	}
	return nil
}

// upload is one file or directory to copy.
type upload struct {
	local  string // below the root
	remote string // absolute
	mode   fs.FileMode
}

func (f Files) uploadOne(ctx context.Context, root *os.Root, item upload) error {
	if item.mode.IsDir() {
		return f.MakeDir(ctx, item.remote, item.mode.Perm())
	}
	file, err := root.Open(item.local)
	if err != nil {
		return &Error{Code: CodeInvalidArgument, Err: err}
	}
	defer file.Close()
	return f.Write(ctx, item.remote, file, item.mode.Perm())
}

// planUpload lists what to copy, parents first. The caller closes the root.
func planUpload(local, remote string) ([]upload, *os.Root, error) {
	info, err := os.Stat(local)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case info.Mode().IsRegular():
		// The file itself may be a link to anywhere: the caller named it.
		real, err := filepath.EvalSymlinks(local)
		if err != nil {
			return nil, nil, err
		}
		root, err := os.OpenRoot(filepath.Dir(real))
		if err != nil {
			return nil, nil, err
		}
		return []upload{{filepath.Base(real), remote, info.Mode()}}, root, nil
	case !info.IsDir():
		return nil, nil, fmt.Errorf("%s is %s, not a file or folder", local, kind(info.Mode()))
	}
	real, err := filepath.EvalSymlinks(local)
	if err != nil {
		return nil, nil, err
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, nil, err
	}
	p := planner{base: real, shown: local, root: root}
	if err := p.dir(".", remote, nil); err != nil {
		root.Close()
		return nil, nil, err
	}
	return p.plan, root, nil
}

type planner struct {
	base  string // absolute and free of links
	shown string // as the caller wrote it
	root  *os.Root
	plan  []upload
}

// dir plans a directory; above are the directories that contain it, which a
// link must not lead back to.
func (p *planner) dir(name, remote string, above []string) error {
	if slices.Contains(above, name) {
		return fmt.Errorf("%s: a symbolic link leads back to a folder that contains it", filepath.Join(p.shown, name))
	}
	info, err := p.root.Stat(name)
	if err != nil {
		return err
	}
	if err := p.add(upload{name, remote, info.Mode()}); err != nil {
		return err
	}
	entries, err := fs.ReadDir(p.root.FS(), filepath.ToSlash(name))
	if err != nil {
		return err
	}
	above = append(slices.Clip(above), name)
	for _, e := range entries {
		if err := p.entry(filepath.Join(name, e.Name()), path.Join(remote, e.Name()), above); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) entry(name, remote string, above []string) error {
	info, err := p.root.Lstat(name)
	if err != nil {
		return err
	}
	shown := filepath.Join(p.shown, name)
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(filepath.Join(p.base, name))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is a symbolic link to nothing", shown)
		} else if err != nil {
			return err
		}
		rel, err := filepath.Rel(p.base, target)
		if err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("%s is a symbolic link out of the folder, to %s: copy its target in, or pass that as well", shown, target)
		}
		name = rel
		if info, err = p.root.Lstat(name); err != nil {
			return err
		}
	}
	switch {
	case info.IsDir():
		return p.dir(name, remote, above)
	case info.Mode().IsRegular():
		return p.add(upload{name, remote, info.Mode()})
	}
	return fmt.Errorf("%s is %s, not a file or folder", shown, kind(info.Mode()))
}

func (p *planner) add(u upload) error {
	if len(p.plan) >= maxEntries {
		return fmt.Errorf("%s holds more than %d files", p.shown, maxEntries)
	}
	p.plan = append(p.plan, u)
	return nil
}

// kind names what a mode is, with its article.
func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsDir():
		return "a folder"
	}
	return strings.TrimSpace("no ordinary file " + m.Type().String())
}
