package gvisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/sentry/control"
	fspb "gvisor.dev/gvisor/pkg/sentry/fscheckpoint/fscheckpoint_proto_go_proto"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// Checkpoint implements engine.Checkpointer. The channel stays open: its messages
// are atomic, and a restored guest is greeted with a new session.
func (m *machine) Checkpoint(ctx context.Context, dir string, opts engine.CheckpointOptions) error {
	return m.change(ctx, "checkpoint", func() (err error) {
		if opts.FilesOnly && !m.engine.keepsFiles() {
			return fmt.Errorf("files only: what is written is in memory, for there is no folder for it: %w", engine.ErrNotSupported)
		}
		if err := isEmpty(dir); err != nil {
			return err
		}
		if !m.paused {
			// Files and memory are of the same moment. Not with ctx: a call that
			// is given up goes on in the kernel.
			if err := m.call(boot.ContMgrPause, nil); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, m.call(boot.ContMgrResume, nil)) }()
		}
		if err := m.write(ctx, dir, opts); err != nil {
			return errors.Join(diskFull(err), empty(dir))
		}
		return nil
	})
}

// diskFull makes ENOSPC of what the machine's kernel says of a file system that is full: its
// errors come as text, of many lines where what it could not write was its own state.
func diskFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return err
	}
	return fmt.Errorf("the sandbox's kernel could not write it: %w", unix.ENOSPC)
}

// call is one to the machine's kernel that only the machine's end gives up.
func (m *machine) call(method string, arg any) error {
	return call(context.Background(), m.socket, method, arg, nil)
}

// keepsFiles reports whether what is written inside is in a file of its own.
func (e *Engine) keepsFiles() bool { return e.cfg.OverlayDir != "" }

// write fills dir while nothing runs inside.
func (m *machine) write(ctx context.Context, dir string, opts engine.CheckpointOptions) error {
	i := image{Kind: kindMemory, Fixed: m.fixed, Features: m.features}
	if opts.FilesOnly {
		i.Kind, i.Features = kindFiles, nil
	} else {
		var err error
		if i.Dependencies, err = m.dependencies(); err != nil {
			return fmt.Errorf("what its programs have open: %w", err)
		}
	}
	files := m.engine.keepsFiles() && !opts.MemoryOnly
	if files {
		if err := m.writeFiles(dir, opts.FilesOnly); err != nil {
			return fmt.Errorf("files: %w", err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !opts.FilesOnly {
		if err := m.writeMemory(dir); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		if files {
			if err := shareMemorysPages(dir); err != nil {
				return fmt.Errorf("files in the memory: %w", err)
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var err error
	if i.Sizes, err = sizes(dir); err != nil {
		return err
	}
	return writeImage(dir, i)
}

// writeFiles writes what is below "/". Its pages are left out if the memory, of which
// they are a part, is written too.
func (m *machine) writeFiles(dir string, pages bool) error {
	var files creation
	defer files.close()
	files.create(dir, filesManifest)
	files.create(dir, filesTree)
	files.create(dir, filesMetaFile)
	if pages {
		files.create(dir, pagesFile)
	} else {
		files.open(os.DevNull, os.O_WRONLY)
	}
	if files.err != nil {
		return files.err
	}
	return m.call(boot.ContMgrFSSave, &boot.FSSaveArgs{FilePayload: files.payload()})
}

// writeMemory writes the memory and, as a part of it, what is below "/".
func (m *machine) writeMemory(dir string) error {
	var files creation
	defer files.close()
	files.create(dir, stateFile)
	files.create(dir, pagesMetaFile)
	files.create(dir, pagesFile)
	if files.err != nil {
		return files.err
	}
	return m.call(boot.ContMgrCheckpoint, &control.SaveOpts{
		Metadata:                       statefile.CompressionLevelNone.ToMetadata(),
		AppMFExcludeCommittedZeroPages: true,
		HavePagesFile:                  true,
		FilePayload:                    files.payload(),
		// Without it gVisor ends the machine, also when it could not write.
		Resume: true,
	})
}

// creation opens files of which one fails, or none.
type creation struct {
	files []*os.File
	err   error
}

func (c *creation) create(dir, name string) {
	c.open(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR)
}

func (c *creation) open(path string, flags int) {
	if c.err != nil {
		return
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		c.err = err
		return
	}
	c.files = append(c.files, f)
}

func (c *creation) payload() urpc.FilePayload { return urpc.FilePayload{Files: c.files} }

func (c *creation) close() {
	for _, f := range c.files {
		f.Close()
	}
}

// shareMemorysPages says in the description of the files that their pages are in
// those of the memory: gVisor writes the memory of programs first, and then that of
// the one file that machines keep what is written in. Both were written while nothing
// ran, so they are the same.
func shareMemorysPages(dir string) error {
	programs, err := pagesIn(filepath.Join(dir, pagesMetaFile))
	if err != nil {
		return err
	}
	files, err := pagesIn(filepath.Join(dir, filesMetaFile))
	if err != nil {
		return err
	}
	all, err := os.Stat(filepath.Join(dir, pagesFile))
	if err != nil {
		return err
	}
	if programs+files != all.Size() {
		return fmt.Errorf("%d bytes of programs and %d of files are not the %d that there are", programs, files, all.Size())
	}
	path := filepath.Join(dir, filesManifest)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var manifest fspb.Manifest
	if err := proto.Unmarshal(b, &manifest); err != nil {
		return err
	}
	if n := len(manifest.MemoryFiles); n != 1 {
		return fmt.Errorf("they are in %d memory files", n)
	}
	manifest.MemoryFiles[0].PagesStart = uint64(programs)
	if b, err = proto.Marshal(&manifest); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// maxPagesMeta is the most that is read of the list of a memory file's pages, in bytes.
const maxPagesMeta = 1 << 30

// pagesIn returns the bytes of pages that the first memory file has that is described
// in a file: its length in eight bytes, and then itself.
func pagesIn(path string) (bytes int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var length [8]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > uint64(min(info.Size(), maxPagesMeta)) {
		return 0, fmt.Errorf("%s: a description of %d bytes in a file of %d", filepath.Base(path), n, info.Size())
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		return 0, err
	}
	var meta pgallocpb.MemoryFileMetadataProto
	if err := proto.Unmarshal(b, &meta); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	for _, r := range meta.MemAcct {
		if r.KnownCommitted {
			bytes += int64(r.End - r.Start)
		}
	}
	return bytes, nil
}

// sizes are those of the files in a folder.
func sizes(dir string) (map[string]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		found[e.Name()] = info.Size()
	}
	return found, nil
}

// isEmpty fails for a folder that is not there or in which something is.
func isEmpty(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if names, err := f.Readdirnames(1); err != io.EOF {
		return fmt.Errorf("%s is not empty: it has %q (%v)", dir, names, err)
	}
	return nil
}

// empty removes what was written into a folder that was empty.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		// A kernel that could not write a file may not have closed it either, and
		// would keep its place on the disk.
		path := filepath.Join(dir, e.Name())
		errs = append(errs, os.Truncate(path, 0), os.Remove(path))
	}
	return errors.Join(errs...)
}

// directFrom is the size of a file of pages, in bytes, from which on it is read without
// the page cache. gVisor reads with 128 threads. Where they copy, the one that builds the
// kernel meanwhile hardly gets a processor, so that all pages were there first: 1.8 to
// 2.4 s for a GiB on two processors, and 0.9 to 1.2 s where a disk fills the pages.
const directFrom = 128 << 20

// readDirectly reports whether a checkpoint's pages are to be read without the page cache.
func readDirectly(dir string) bool {
	path := filepath.Join(dir, pagesFile)
	if info, err := os.Stat(path); err != nil || info.Size() < directFrom {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0) // not every file system can
	if err != nil {
		return false
	}
	f.Close()
	return true
}
