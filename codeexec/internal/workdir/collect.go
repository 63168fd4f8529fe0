package workdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
)

// Collector takes a workspace's files one by one, keeps to an OutputSpec's
// limits, and makes the manifest.
type Collector struct {
	spec  codeexec.OutputSpec
	room  int64
	seen  map[string]bool
	files []codeexec.File
	left  []codeexec.LeftFile
	hit   bool
}

// NewCollector returns a collector with the spec's limits or the defaults. A
// negative limit is an error.
func NewCollector(spec codeexec.OutputSpec) (*Collector, error) {
	if spec.MaxFiles < 0 || spec.MaxFileBytes < 0 || spec.MaxTotalBytes < 0 {
		return nil, errors.New("a limit is negative")
	}
	spec.MaxFiles = cmp.Or(spec.MaxFiles, codeexec.DefaultMaxFiles)
	spec.MaxFileBytes = cmp.Or(spec.MaxFileBytes, codeexec.DefaultMaxFileBytes)
	spec.MaxTotalBytes = cmp.Or(spec.MaxTotalBytes, codeexec.DefaultMaxTotalBytes)
	return &Collector{spec: spec, room: spec.MaxTotalBytes, seen: map[string]bool{}}, nil
}

// Want says how many bytes of a file of that size are to be read; ok is false if
// the file is left, which the collector then notes.
func (c *Collector) Want(name string, size int64) (n int64, ok bool) {
	if c.seen[name] {
		return 0, false
	}
	switch {
	case len(c.seen) >= c.spec.MaxFiles:
		c.Leave(name, fmt.Sprintf("more than %d files", c.spec.MaxFiles))
		return 0, false
	case c.content() && c.room <= 0 && size > 0:
		c.Leave(name, fmt.Sprintf("more than %d bytes in all", c.spec.MaxTotalBytes))
		return 0, false
	}
	if !c.content() {
		c.seen[name] = true
		return min(size, sniffLen), true
	}
	n = min(size, c.spec.MaxFileBytes, c.room)
	c.room -= n
	c.seen[name] = true
	return n, true
}

// content says whether more of a file than its type is wanted.
func (c *Collector) content() bool { return c.spec.Inline || c.spec.Save }

// Add takes a file that Want wanted: its whole size and its first bytes.
func (c *Collector) Add(name string, size int64, content []byte) {
	size = max(size, int64(len(content)))
	f := codeexec.File{Name: name, Content: content, MIMEType: MIMEType(name, content), SizeBytes: size}
	if f.Truncated = c.content() && int64(len(content)) < size; f.Truncated {
		c.Leave(name, fmt.Sprintf("cut after %d of %d bytes", len(content), size))
	}
	c.files = append(c.files, f)
}

// Read is Add from a stream of want bytes.
func (c *Collector) Read(name string, size, want int64, r io.Reader) error {
	content := make([]byte, want)
	n, err := io.ReadFull(r, content)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if int64(n) < want {
		size = int64(n) // it has become shorter
	}
	c.Add(name, size, content[:n])
	return nil
}

// Leave notes a file that was not collected, or not whole.
func (c *Collector) Leave(name, reason string) {
	c.hit = true
	if len(c.left) < maxLeft {
		c.left = append(c.left, codeexec.LeftFile{Name: Show(name), Reason: reason})
	}
}

// Sort puts the files in the order of their names.
func (c *Collector) Sort() {
	slices.SortStableFunc(c.files, func(a, b codeexec.File) int { return strings.Compare(a.Name, b.Name) })
}

// All reports whether nothing was cut or left.
func (c *Collector) All() bool { return !c.hit }

// Left returns the files that were not collected, or not whole: up to 100 of them.
func (c *Collector) Left() []codeexec.LeftFile { return c.left }

// Files returns what was collected.
func (c *Collector) Files() []codeexec.File { return c.files }

// Manifest saves what is to be saved and returns the manifest. When saving
// fails, it tells what was saved: the error is ErrPartialOutputCommit if that is
// anything.
func (c *Collector) Manifest(ctx context.Context) (codeexec.OutputManifest, error) {
	m := codeexec.OutputManifest{Files: make([]codeexec.FileRef, 0, len(c.files))}
	for _, f := range c.files {
		ref := codeexec.FileRef{Name: f.Name, MIMEType: f.MIMEType, SizeBytes: f.SizeBytes, Truncated: f.Truncated}
		if c.spec.Inline {
			ref.Content = f.Content
		}
		m.Files = append(m.Files, ref)
	}
	err := c.save(ctx, m.Files)
	m.LimitsHit, m.Left = c.hit, c.left
	return m, err
}

func (c *Collector) save(ctx context.Context, refs []codeexec.FileRef) error {
	if !c.spec.Save {
		return nil
	}
	saved := 0
	for i, f := range c.files {
		if f.Truncated {
			c.Leave(f.Name, "not saved: it was cut")
			continue
		}
		name := c.spec.NameTemplate + f.Name
		version, err := artifactctx.Save(ctx, name, f.Content, f.MIMEType)
		if err != nil {
			if saved > 0 {
				err = fmt.Errorf("%w: %d of %d: %w", codeexec.ErrPartialOutputCommit, saved, len(c.files), err)
				return &cubby.Error{Op: "save outputs", Code: cubby.CodeOf(err), Err: err}
			}
			return err
		}
		refs[i].SavedAs, refs[i].Version = name, version
		saved++
	}
	return nil
}
