//go:build linux

package packed

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

const (
	lockName = "lock" // of a folder in which programs are unpacked
	// asideSuffix ends the names of files that are being written. They are written
	// under the folder's lock: whoever has it finds only those of processes that were
	// killed.
	asideSuffix = ".part"
	// patience is how long another process may take to unpack the program before this
	// one does it elsewhere. It takes 0.2 seconds on an idle machine.
	patience = 20 * time.Second
)

// unpacked takes the program from a folder with several versions, where it is unpacked
// if it is not there yet.
func (o *opener) unpacked(ctx context.Context, from From, path string) (*Located, error) {
	if path == "" {
		return nil, errors.New("there is none")
	}
	dir, err := makeFolder(path)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(dir)
	if ready.NoExec(dir) {
		return nil, errors.New("nothing can be run from its file system (noexec)")
	}
	if f, err := o.noted(dir, path); err == nil {
		return o.found(f, from), nil
	}
	f, err := o.unpack(ctx, dir, path)
	if err != nil {
		return nil, err
	}
	return o.found(f, from), nil
}

// noted opens the unpacked program if a note says that it has the right content.
func (o *opener) noted(dir int, path string) (ready.File, error) {
	f, err := o.unchecked(dir, path)
	if err != nil {
		return f, err
	}
	if ready.Lookup(ready.ReadNotes(dir), ready.Key(&f.Stat)) != o.want.SHA256 {
		f.Close()
		return ready.File{}, errors.New("no note says what its content is")
	}
	return f, nil
}

// unchecked opens the unpacked program, of which all but the content is judged.
func (o *opener) unchecked(dir int, path string) (ready.File, error) {
	name := o.want.FileName()
	f, err := ready.OpenAt(dir, filepath.Join(path, name), name)
	if err != nil {
		return f, err
	}
	err = o.want.Judge(f)
	if err == nil && f.Stat.Mode&0o7777 != ready.Mode {
		err = fmt.Errorf("%s has mode %04o, not %04o", f.Path, f.Stat.Mode&0o7777, ready.Mode)
	}
	if err != nil {
		f.Close()
		return ready.File{}, err
	}
	return f, nil
}

// unpack makes the folder have the program, under the folder's lock.
func (o *opener) unpack(ctx context.Context, dir int, path string) (ready.File, error) {
	none := ready.File{}
	if unix.Faccessat(dir, ".", unix.W_OK, 0) != nil {
		// A folder that cannot be written may still have it.
		if f, err := o.unchecked(dir, path); err == nil {
			if err := o.check(ctx, f, false); err == nil {
				return f, nil
			}
			f.Close()
		}
		return none, errors.New("this user cannot write there")
	}
	unlock, f, err := o.lock(ctx, dir, path)
	if err != nil || f.FD > 0 {
		return f, err
	}
	defer unlock()
	folder, err := openFolder(dir, path)
	if err != nil {
		return none, err
	}
	defer folder.Close()
	o.sweep(folder)
	// It may be there without a note: its writer was killed, or it was copied.
	if f, err := o.unchecked(dir, path); err == nil {
		sum, err := hash(ctx, f)
		if err == nil && sum == o.want.SHA256 {
			note(folder, f, sum)
			return f, nil
		}
		f.Close()
	}
	f, err = o.write(ctx, folder)
	if err != nil {
		return none, err
	}
	note(folder, f, o.want.SHA256)
	return f, nil
}

// lock waits for the lock of the folder, or for another process to unpack the program,
// whatever comes first. In the second case it returns the file.
func (o *opener) lock(ctx context.Context, dir int, path string) (unlock func(), f ready.File, err error) {
	fd, err := unix.Openat(dir, lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, f, &fs.PathError{Op: "open", Path: filepath.Join(path, lockName), Err: err}
	}
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			// Its last holder may have unpacked the program a moment ago.
			if f, err := o.noted(dir, path); err == nil {
				unix.Close(fd)
				return nil, f, nil
			}
			return func() { unix.Close(fd) }, f, nil
		case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
		default:
			unix.Close(fd)
			return nil, f, &fs.PathError{Op: "lock", Path: filepath.Join(path, lockName), Err: err}
		}
		if f, err := o.noted(dir, path); err == nil {
			unix.Close(fd)
			return nil, f, nil
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(wait):
			if time.Now().After(deadline) {
				err = fmt.Errorf("another process has had the lock of the folder for %v", patience)
			}
		}
		if err != nil {
			unix.Close(fd)
			return nil, f, err
		}
	}
}

// write writes the program aside, checks and syncs it, and gives it its name. What it
// returns is the file that it wrote, whatever has that name meanwhile.
func (o *opener) write(ctx context.Context, folder *os.File) (f ready.File, err error) {
	dir := int(folder.Fd())
	name := o.want.FileName()
	aside := "." + name + "." + rand.Text()[:8] + asideSuffix
	fd, err := unix.Openat(dir, aside, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return f, &fs.PathError{Op: "create", Path: filepath.Join(folder.Name(), aside), Err: err}
	}
	file := os.NewFile(uintptr(fd), filepath.Join(folder.Name(), aside))
	defer func() {
		file.Close() // closed already if all went well
		if err != nil {
			_ = unix.Unlinkat(dir, aside, 0)
		}
	}()
	if err := o.program.decompress(ctx, file); err != nil {
		return f, err
	}
	if err := file.Chmod(ready.Mode); err != nil {
		return f, err
	}
	if err := file.Sync(); err != nil {
		return f, err
	}
	if f, err = reopen(file, folder); err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	f.Path = filepath.Join(folder.Name(), name)
	if err := file.Close(); err != nil { // or it could not be executed
		return f, err
	}
	if err := unix.Renameat(dir, aside, dir, name); err != nil {
		return f, &fs.PathError{Op: "rename", Path: f.Path, Err: err}
	}
	if err := syscall.Fstat(f.FD, &f.Stat); err != nil { // a new name is a change
		return f, os.NewSyscallError("fstat", err)
	}
	return f, folder.Sync()
}

// reopen opens a file that is being written for reading.
func reopen(file, folder *os.File) (f ready.File, err error) {
	if f.FD, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return f, &fs.PathError{Op: "open", Path: file.Name(), Err: err}
	}
	if f.Dir, err = unix.FcntlInt(folder.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		unix.Close(f.FD)
		return ready.File{}, os.NewSyscallError("dup", err)
	}
	return f, nil
}

// decompress writes the program, and fails unless its length and hash are right.
func (p Program) decompress(ctx context.Context, to io.Writer) error {
	zr, err := zstd.NewReader(bytes.NewReader(p.Zstd), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer zr.Close()
	sum := sha256.New()
	// One byte more than there should be shows that there is more.
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(contextReader{ctx, zr}, p.Size+1))
	if err != nil {
		return fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != p.Size || got != p.SHA256 {
		return fmt.Errorf("unpack %s: %d bytes with SHA-256 %s, not %d with %s: this program is damaged, install it anew", p.Name, n, got, p.Size, p.SHA256)
	}
	return nil
}

// maxWindow bounds the memory for decompression; command pack uses less.
const maxWindow = 32 << 20

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// sweep removes what killed processes have left, and other versions of the program whose
// lock nobody has. The folder's lock is held.
func (o *opener) sweep(folder *os.File) {
	names, _ := folder.Readdirnames(-1)
	dir := int(folder.Fd())
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, ".") && strings.HasSuffix(name, asideSuffix):
			_ = unix.Unlinkat(dir, name, 0)
		case o.otherVersion(name):
			fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
				_ = unix.Unlinkat(dir, name, 0)
			}
			unix.Close(fd)
		}
	}
}

func (o *opener) otherVersion(name string) bool {
	version, ok := strings.CutPrefix(name, o.want.Name+"-")
	_, err := hex.DecodeString(version)
	return ok && err == nil && len(version) == 16 && name != o.want.FileName()
}

// openFolder opens a folder, of which dir is an O_PATH descriptor, for reading.
func openFolder(dir int, path string) (*os.File, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// makeFolder opens a folder in which programs are unpacked, and makes it, and the cache
// around it, if it is not there.
func makeFolder(path string) (int, error) {
	dir, err := ready.Folder(path)
	if !errors.Is(err, syscall.ENOENT) {
		return dir, err
	}
	parent := filepath.Dir(path)
	around, err := ready.Folder(parent)
	if errors.Is(err, syscall.ENOENT) {
		// Nobody else's business; so the XDG base directory specification has it.
		if err := makeOne(filepath.Dir(parent), filepath.Base(parent), 0o700); err != nil {
			return -1, err
		}
	} else if err != nil {
		return -1, err
	} else {
		syscall.Close(around)
	}
	// Sandboxes' users reach the guest through it.
	if err := makeOne(parent, filepath.Base(path), 0o755); err != nil {
		return -1, err
	}
	return ready.Folder(path)
}

// makeOne makes a folder, whatever the umask is.
func makeOne(parent, name string, mode uint32) error {
	path := filepath.Join(parent, name)
	dir, err := ready.Folder(parent)
	if err != nil {
		return err
	}
	defer syscall.Close(dir)
	if err := unix.Mkdirat(dir, name, mode); errors.Is(err, unix.EEXIST) {
		return nil // another process was faster
	} else if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}

// noteInCache notes the hash of a file that is elsewhere.
func (o *opener) noteInCache(f ready.File, sum string) {
	if o.place.Cache == "" {
		return
	}
	dir, err := makeFolder(o.place.Cache)
	if err != nil {
		return
	}
	defer syscall.Close(dir)
	folder, err := openFolder(dir, o.place.Cache)
	if err != nil {
		return
	}
	defer folder.Close()
	fd, err := unix.Openat(dir, lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		note(folder, f, sum)
	}
}

// note adds a line to the folder's notes, whose lock is held. Without it the next start
// computes the hash again: an error is no reason to fail.
func note(folder *os.File, f ready.File, sum string) {
	dir := int(folder.Fd())
	lines := []string{ready.Key(&f.Stat) + sum}
	file := fmt.Sprintf("%d %d ", f.Stat.Dev, f.Stat.Ino)
	for line := range strings.Lines(ready.ReadNotes(dir)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, file) && len(lines) < ready.MaxNotes && len(line) < 250 {
			lines = append(lines, line)
		}
	}
	lines = slices.Compact(lines)
	aside := "." + ready.NotesName + "." + rand.Text()[:8] + asideSuffix
	fd, err := unix.Openat(dir, aside, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	out := os.NewFile(uintptr(fd), aside)
	_, err = out.WriteString(strings.Join(lines, "\n") + "\n")
	err = errors.Join(err, out.Chmod(0o444), out.Close())
	if err == nil {
		err = unix.Renameat(dir, aside, dir, ready.NotesName)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, aside, 0)
	}
}
