package workdir

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
)

// Packer collects what goes into a workspace and writes it as one tar stream.
// Each file's parents are in the stream before it, as folders: whoever unpacks it
// replaces a link that stands in the way instead of following it.
type Packer struct {
	items map[string]item // by clean path
	order []string
	bytes int64
	roots []*os.Root
}

type item struct {
	dir     bool
	mode    fs.FileMode
	content []byte
	root    *os.Root // of the file on the host, if content is nil
	local   string
	size    int64
}

// Close lets go of the host's folders.
func (p *Packer) Close() {
	for _, r := range p.roots {
		r.Close()
	}
	p.roots = nil
}

// Bytes is the size of all content so far.
func (p *Packer) Bytes() int64 { return p.bytes }

func (p *Packer) add(name string, it item) error {
	if p.items == nil {
		p.items = map[string]item{}
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if above, ok := p.items[dir]; ok && !above.dir {
			return fmt.Errorf("%w: %q is to be a file and a folder", codeexec.ErrBadPath, Show(dir))
		} else if ok {
			break
		}
		p.items[dir] = item{dir: true, mode: 0o755}
		p.order = append(p.order, dir)
	}
	if before, ok := p.items[name]; ok {
		if before.dir != it.dir {
			return fmt.Errorf("%w: %q is to be a file and a folder", codeexec.ErrBadPath, Show(name))
		}
		p.bytes -= before.size
	} else {
		if len(p.order) >= MaxEntries {
			return fmt.Errorf("more than %d files and folders", MaxEntries)
		}
		p.order = append(p.order, name)
	}
	p.items[name] = it
	p.bytes += it.size
	return nil
}

// AddFile adds a file; a later one of the same name wins. A zero mode means
// 0644.
func (p *Packer) AddFile(name string, content []byte, mode uint32) error {
	clean, err := CleanFile(name)
	if err != nil {
		return err
	}
	m := fs.FileMode(mode) & fs.ModePerm
	if m == 0 {
		m = 0o644
	}
	return p.add(clean, item{mode: m, content: content, size: int64(len(content))})
}

// AddArtifact adds the artifact that an input names, from ctx's service: the
// version that the input asks for, else the one that rec pins if the input is to
// be pinned, else the newest. It returns which that is.
func (p *Packer) AddArtifact(ctx context.Context, rec *Record, in Input) (version *int, err error) {
	version = in.Version
	if version == nil && in.Pin {
		version = rec.Pinned(in.Path)
	}
	a, loaded, err := artifactctx.Load(ctx, in.Path, version)
	if err != nil {
		return nil, err
	}
	mode := uint32(0o644)
	if in.ReadOnly {
		mode = 0o444
	}
	return &loaded, p.AddFile(in.To, a.Data, mode)
}

func (p *Packer) addFolder(name string, mode fs.FileMode) error {
	clean, err := CleanFile(name)
	if err != nil {
		return err
	}
	return p.add(clean, item{dir: true, mode: mode})
}

// AddHost adds a file or folder of the host under the name to, which may be "."
// for a folder. Symbolic links in a folder are followed as far as they stay in
// it; links that leave it, loops, devices, pipes and sockets are errors that name
// them: nothing is left out quietly. readOnly takes the write permission away.
func (p *Packer) AddHost(src, to string, readOnly bool) error {
	to, err := Clean(to)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(src)
	if err != nil {
		return err
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	info, err := os.Lstat(real)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		if to == "." {
			return fmt.Errorf("%w: a file needs a name to go to", codeexec.ErrBadPath)
		}
		root, err := os.OpenRoot(filepath.Dir(real))
		if err != nil {
			return err
		}
		p.roots = append(p.roots, root)
		return p.add(to, item{mode: fileMode(info.Mode(), readOnly), root: root, local: filepath.Base(real), size: info.Size()})
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is %s, not a file or folder", src, Kind(info.Mode()))
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return err
	}
	p.roots = append(p.roots, root)
	w := walker{p: p, base: real, shown: src, root: root, readOnly: readOnly}
	return w.dir(".", to, nil)
}

func fileMode(m fs.FileMode, readOnly bool) fs.FileMode {
	m = m & 0o777
	if readOnly {
		m &^= 0o222
	}
	return m
}

type walker struct {
	p        *Packer
	base     string // absolute and free of links
	shown    string // as the caller wrote it
	root     *os.Root
	readOnly bool
}

// dir adds a folder; above are the folders that contain it, which a link must
// not lead back to.
func (w *walker) dir(name, to string, above []string) error {
	if len(above) >= maxDepth {
		return fmt.Errorf("%s: more than %d folders deep", filepath.Join(w.shown, name), maxDepth)
	}
	if to != "." {
		// Whoever unpacks gives folders their modes when all files are in them.
		if err := w.p.addFolder(to, fileMode(0o755, w.readOnly)); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(w.root.FS(), filepath.ToSlash(name))
	if err != nil {
		return err
	}
	above = append(slices.Clip(above), name)
	for _, e := range entries {
		if err := w.entry(filepath.Join(name, e.Name()), path.Join(to, e.Name()), above); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(name, to string, above []string) error {
	shown := filepath.Join(w.shown, name)
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(filepath.Join(w.base, name))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is a symbolic link to nothing", shown)
		} else if err != nil {
			return err
		}
		rel, err := filepath.Rel(w.base, target)
		if err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("%w: %s is a symbolic link out of the folder, to %s", codeexec.ErrBadPath, shown, target)
		}
		if slices.Contains(above, rel) {
			return fmt.Errorf("%s: a symbolic link leads back to a folder that contains it", shown)
		}
		name = rel
		if info, err = w.root.Lstat(name); err != nil {
			return err
		}
	}
	switch {
	case info.IsDir():
		return w.dir(name, to, above)
	case info.Mode().IsRegular():
		clean, err := CleanFile(to)
		if err != nil {
			return err
		}
		return w.p.add(clean, item{mode: fileMode(info.Mode(), w.readOnly), root: w.root, local: name, size: info.Size()})
	}
	return fmt.Errorf("%s is %s, not a file or folder", shown, Kind(info.Mode()))
}

// WriteTo writes the stream. A file that changes its size meanwhile is an error.
func (p *Packer) WriteTo(w io.Writer) (int64, error) {
	c := &countWriter{w: w}
	tw := tar.NewWriter(c)
	now := time.Now()
	for _, name := range p.sorted() {
		if err := p.writeItem(tw, name, now); err != nil {
			return c.n, err
		}
	}
	return c.n, tw.Close()
}

// sorted puts what is in a folder right after it: tar makes a folder read-only,
// if it is to be that, as soon as it comes to something elsewhere.
func (p *Packer) sorted() []string {
	names := slices.Clone(p.order)
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	return names
}

func (p *Packer) writeItem(tw *tar.Writer, name string, now time.Time) error {
	it := p.items[name]
	h := &tar.Header{Name: name, Mode: int64(it.mode), ModTime: now, Typeflag: tar.TypeReg, Size: it.size}
	if it.dir {
		h.Name, h.Typeflag, h.Size = name+"/", tar.TypeDir, 0
		return tw.WriteHeader(h)
	}
	if it.root == nil {
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err := tw.Write(it.content)
		return err
	}
	f, err := it.root.OpenFile(it.local, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s has become %s", name, Kind(info.Mode()))
	}
	h.Size, h.ModTime = info.Size(), info.ModTime()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.Copy(tw, io.LimitReader(f, h.Size)); err != nil {
		return err
	} else if n < h.Size {
		return fmt.Errorf("%s became shorter while it was read", name)
	}
	return nil
}

// Reader returns the stream to read. Closing it ends the writing; what went
// wrong with a file of the host is the error of a Read.
func (p *Packer) Reader() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		_, err := p.WriteTo(w)
		w.CloseWithError(err)
	}()
	return r
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// Kind names what a mode is, with its article.
func Kind(m fs.FileMode) string {
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
	return "no ordinary file"
}
