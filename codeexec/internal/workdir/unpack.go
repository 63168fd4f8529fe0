package workdir

import (
	"archive/tar"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// maxLeft bounds a report.
const maxLeft = 100

// Limits of an archive. Zero means the defaults of package codeexec for
// collecting; a negative number means none of it.
type Limits struct {
	Files      int
	FileBytes  int64
	TotalBytes int64
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Files:      cmp.Or(l.Files, codeexec.DefaultMaxFiles),
		FileBytes:  cmp.Or(l.FileBytes, codeexec.DefaultMaxFileBytes),
		TotalBytes: cmp.Or(l.TotalBytes, codeexec.DefaultMaxTotalBytes),
	}
}

// Unpack extracts a tar stream below root and reports what it left: links,
// devices, pipes, bad names, what is over the limits. Only files and folders are
// made, each file as a whole under its name; a link in the way is replaced, and
// one on the way is followed only inside root. The stream is hostile.
func Unpack(r io.Reader, root *os.Root, limits Limits) (left []codeexec.LeftFile, err error) {
	l := limits.withDefaults()
	leave := func(name, why string) {
		if len(left) < maxLeft {
			left = append(left, codeexec.LeftFile{Name: Show(name), Reason: why})
		}
	}
	tr := tar.NewReader(r)
	var readOnly []string // folders, which become that in the end
	defer func() {
		for _, name := range slices.Backward(readOnly) {
			if failed := root.Chmod(name, 0o555); failed != nil {
				err = errors.Join(err, failed)
			}
		}
	}()
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return left, nil
		}
		if err != nil {
			return left, fmt.Errorf("the archive is damaged: %w", err)
		}
		if n > MaxEntries {
			return left, fmt.Errorf("the archive has more than %d entries", MaxEntries)
		}
		name := path.Clean(h.Name)
		if err := CheckName(name); err != nil {
			if name != "." {
				leave(h.Name, err.Error())
			}
			continue
		}
		local := filepath.FromSlash(name)
		if !filepath.IsLocal(local) {
			leave(name, "the name is not safe here")
			continue
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if err := makeFolder(root, local); err != nil {
				leave(name, "cannot make the folder: "+err.Error())
			} else if h.Mode&0o200 == 0 {
				readOnly = append(readOnly, local)
			}
		case tar.TypeReg:
			switch {
			case l.Files <= 0:
				leave(name, "over the limit of files")
			case h.Size > l.FileBytes:
				leave(name, fmt.Sprintf("more than %d bytes", l.FileBytes))
			case h.Size > l.TotalBytes:
				leave(name, "over the limit of all bytes")
			default:
				if err := writeFile(root, local, tr, fs.FileMode(h.Mode)&0o755|0o400); err != nil {
					_, onPath := errors.AsType[*fs.PathError](err)
					_, onRename := errors.AsType[*os.LinkError](err)
					if !onPath && !onRename {
						return left, fmt.Errorf("the archive is damaged: %w", err)
					}
					leave(name, err.Error())
					continue
				}
				l.Files--
				l.TotalBytes -= h.Size
			}
		default:
			leave(name, TypeName(h.Typeflag)+" is not copied")
		}
	}
}

// makeFolder also makes a read-only folder one that can be written to: what was
// staged there is staged again.
func makeFolder(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
	case !info.IsDir():
		if err := root.Remove(name); err != nil {
			return err
		}
	case info.Mode()&0o200 == 0:
		return root.Chmod(name, 0o755)
	}
	return root.MkdirAll(name, 0o755)
}

// writeFile writes to a new file first and renames it, so that a link or a
// device that stands in the way is replaced and not written to. It holds on to the
// folder: a program that moves it away must not part the two.
func writeFile(root *os.Root, name string, content io.Reader, mode fs.FileMode) error {
	if parent := filepath.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		folder, err := root.OpenRoot(parent)
		if err != nil {
			return err
		}
		defer folder.Close()
		root, name = folder, filepath.Base(name)
	}
	temp := ".cubby-" + rand.Text()
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		discard(root, temp)
	}
	return err
}

// discardTries bounds how often a file is removed from a folder that is locked
// again and again.
const discardTries = 1000

// discard removes a file of a folder that a program may have locked meanwhile.
func discard(folder *os.Root, name string) {
	for range discardTries {
		if !errors.Is(folder.Remove(name), fs.ErrPermission) {
			return
		}
		info, err := folder.Stat(".")
		if err != nil || folder.Chmod(".", info.Mode().Perm()|0o700) != nil {
			return // it is somebody else's
		}
		err = folder.Remove(name)
		folder.Chmod(".", info.Mode().Perm())
		if !errors.Is(err, fs.ErrPermission) {
			return
		}
	}
}

// TypeName names a kind of archive entry, with its article.
func TypeName(flag byte) string {
	switch flag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a pipe"
	}
	return "what is no ordinary file"
}
