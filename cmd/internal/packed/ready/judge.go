//go:build linux

package ready

import (
	"strconv"
	"syscall"
	"unsafe"
)

// Mode is that of an unpacked program: every user may run it, and nobody writes it.
const Mode = 0o555

// Refusal says why a folder or a file is not to be trusted, or not the one that is
// wanted.
type Refusal struct {
	Path, Why string
	Errno     syscall.Errno // what the system said, if it did
}

func (r *Refusal) Error() string { return r.Path + ": " + r.Why }

func (r *Refusal) Unwrap() error {
	if r.Errno == 0 {
		return nil
	}
	return r.Errno
}

func failed(path string, err error) error {
	errno, _ := err.(syscall.Errno)
	return &Refusal{Path: path, Why: err.Error(), Errno: errno}
}

// File is one that is open for reading, in a folder that nobody else may write.
type File struct {
	Path string
	FD   int
	Dir  int // the folder it was opened from, an O_PATH descriptor
	Stat syscall.Stat_t
}

// Close closes both descriptors.
func (f File) Close() {
	syscall.Close(f.FD)
	syscall.Close(f.Dir)
}

const oPath = 0x200000 // O_PATH, which package syscall does not have

// maxLinks is how many symbolic links a path may lead through, as for Linux itself.
const maxLinks = 40

// Folder opens a folder (O_PATH, close-on-exec). The folder and all above it must belong
// to root or to this user, and nobody else may write them. Above it may be folders like
// /tmp, which others write and whose sticky bit keeps them from touching what is not
// theirs; the folder itself must not be such a one. Symbolic links are followed if they
// are root's or this user's.
//
// In a user namespace an owner who has no uid there is not told from root; see owner.
// Errors are *Refusal.
func Folder(path string) (int, error) {
	dir, st, _, err := walk(path, false)
	if err != nil {
		return -1, err
	}
	if st.Mode&0o022 != 0 {
		syscall.Close(dir)
		return -1, &Refusal{Path: path, Why: "others may write in that folder (mode " + octal(st.Mode) + ")"}
	}
	return dir, nil
}

// OpenIn opens a file of a folder for reading. The file is not followed if it is a link.
// Errors are *Refusal.
func OpenIn(dir, name string) (File, error) {
	fd, err := Folder(dir)
	if err != nil {
		return File{}, err
	}
	return openAt(fd, dir+"/"+name, name)
}

// OpenAt is OpenIn for a folder that is open; the descriptor is not taken over.
func OpenAt(dir int, path, name string) (File, error) {
	fd, err := openat(dir, ".", oPath|syscall.O_DIRECTORY)
	if err != nil {
		return File{}, failed(path, err)
	}
	return openAt(fd, path, name)
}

// openAt takes over dir.
func openAt(dir int, path, name string) (File, error) {
	f := File{Path: path, Dir: dir}
	// A named pipe in its place must not keep the caller waiting.
	fd, err := openat(dir, name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK)
	if err == nil {
		f.FD = fd
		if err = syscall.Fstat(fd, &f.Stat); err != nil {
			syscall.Close(fd)
		}
	}
	if err != nil {
		syscall.Close(dir)
		return File{}, failed(path, err)
	}
	return f, nil
}

// OpenPath opens a file by a path that somebody named, and follows it if it is a link.
// Errors are *Refusal.
func OpenPath(path string) (File, error) {
	dir, st, name, err := walk(path, true)
	if err != nil {
		return File{}, err
	}
	if st.Mode&0o022 != 0 {
		syscall.Close(dir)
		return File{}, &Refusal{Path: path, Why: "others may write in its folder (mode " + octal(st.Mode) + ")"}
	}
	return openAt(dir, path, name)
}

// Judge says what speaks against running a file as the wanted program, as far as that
// can be seen without reading it: nil, or a *Refusal.
func (w Want) Judge(f File) error {
	st := &f.Stat
	refuse := func(why string) error { return &Refusal{Path: f.Path, Why: why} }
	switch {
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return refuse("not a regular file")
	case !owner(st.Uid):
		return refuse("it belongs to user " + strconv.Itoa(int(st.Uid)) + ", neither root nor this user")
	case st.Mode&0o022 != 0:
		return refuse("others may write it (mode " + octal(st.Mode) + ")")
	case st.Mode&0o6000 != 0:
		return refuse("it changes its user or group when it is run (mode " + octal(st.Mode) + ")")
	case st.Mode&0o111 == 0:
		return refuse("it is not executable (mode " + octal(st.Mode) + ")")
	case st.Size != w.Size:
		return refuse("it is of another build: " + strconv.FormatInt(st.Size, 10) + " bytes, not " + strconv.FormatInt(w.Size, 10))
	case NoExec(f.FD):
		return refuse("nothing can be run from its file system (noexec)")
	}
	return nil
}

// NoExec reports whether nothing can be run from the file system of a descriptor.
func NoExec(fd int) bool {
	const stNoExec = 8
	var fs syscall.Statfs_t
	return syscall.Fstatfs(fd, &fs) == nil && fs.Flags&stNoExec != 0
}

// walk opens the folder of a path, or with file set the folder of what the path leads to
// and its name there.
func walk(path string, file bool) (dir int, st syscall.Stat_t, name string, err error) {
	if path == "" || path[0] != '/' {
		return -1, st, "", &Refusal{Path: path, Why: "not an absolute path"}
	}
	rest, links := path, 0
	dir = -1
	fail := func(err error) (int, syscall.Stat_t, string, error) {
		syscall.Close(dir)
		return -1, st, "", err
	}
	root := func() error {
		if dir >= 0 {
			syscall.Close(dir)
		}
		if dir, err = openat(atCWD, "/", oPath|syscall.O_DIRECTORY); err != nil {
			return failed("/", err)
		}
		if err := syscall.Fstat(dir, &st); err != nil {
			return failed("/", err)
		}
		return judgeFolder("/", &st)
	}
	if err := root(); err != nil {
		return fail(err)
	}
	for {
		var part string
		part, rest = cut(rest)
		if part == "" {
			if file {
				return fail(&Refusal{Path: path, Why: "a folder"})
			}
			return dir, st, "", nil
		}
		if part == "." {
			continue
		}
		fd, err := openat(dir, part, oPath|syscall.O_NOFOLLOW)
		if err != nil {
			return fail(failed(path, err))
		}
		var next syscall.Stat_t
		if err := syscall.Fstat(fd, &next); err != nil {
			syscall.Close(fd)
			return fail(failed(path, err))
		}
		switch next.Mode & syscall.S_IFMT {
		case syscall.S_IFLNK:
			target, err := readlink(fd)
			syscall.Close(fd)
			if links++; links > maxLinks {
				err = syscall.ELOOP
			}
			if err != nil {
				return fail(failed(path, err))
			}
			if !owner(next.Uid) {
				return fail(&Refusal{Path: path, Why: "the link " + part + " on the way belongs to user " + strconv.Itoa(int(next.Uid))})
			}
			rest = target + "/" + rest
			if target != "" && target[0] == '/' {
				if err := root(); err != nil {
					return fail(err)
				}
			}
		case syscall.S_IFDIR:
			syscall.Close(dir)
			dir, st = fd, next
			if err := judgeFolder(path, &st); err != nil {
				return fail(err)
			}
		default:
			syscall.Close(fd)
			if file && onlySlashes(rest) {
				return dir, st, part, nil
			}
			return fail(failed(path, syscall.ENOTDIR))
		}
	}
}

// judgeFolder judges one folder on the way to path.
func judgeFolder(path string, st *syscall.Stat_t) error {
	if !owner(st.Uid) {
		return &Refusal{Path: path, Why: "the folder or one above it belongs to user " + strconv.Itoa(int(st.Uid)) + ", neither root nor this user"}
	}
	if st.Mode&0o022 != 0 && st.Mode&syscall.S_ISVTX == 0 {
		return &Refusal{Path: path, Why: "others may write in the folder or in one above it (mode " + octal(st.Mode) + ")"}
	}
	return nil
}

// unmapped is the uid that the kernel shows in a user namespace for every user who has
// none there.
const unmapped = 65534

// owner reports whether a file of that user is to be trusted: root's and this user's
// are. In a user namespace without a uid for everybody, root of the machine may have
// none, and then cannot be told from others. Cubby's own processes are in such a one
// where it runs without root. There the owner must pass; what remains is that folders
// and files that others may write are seen by their mode, and content by its note or
// hash.
func owner(uid uint32) bool {
	return uid == 0 || int(uid) == syscall.Geteuid() || uid == unmapped && !mapsAll()
}

// mapsAll reports whether this process is in a user namespace where each user is who he
// is, as in the first one.
func mapsAll() bool {
	var buf [128]byte
	text := readAll("/proc/self/uid_map", buf[:])
	fields, at := [4]string{}, 0
	for i, start := 0, -1; i <= len(text); i++ {
		blank := i == len(text) || text[i] == ' ' || text[i] == '\n' || text[i] == '\t'
		switch {
		case !blank && start < 0:
			start = i
		case blank && start >= 0:
			if at == len(fields) {
				return false
			}
			fields[at] = text[start:i]
			at, start = at+1, -1
		}
	}
	return fields == [4]string{"0", "0", "4294967295", ""}
}

func readAll(path string, buf []byte) string {
	fd, err := openat(atCWD, path, syscall.O_RDONLY)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, buf)
	if err != nil || n < 0 {
		return ""
	}
	return string(buf[:n])
}

// cut returns the first part of a path, without slashes, and what follows it.
func cut(path string) (part, rest string) {
	for len(path) > 0 && path[0] == '/' {
		path = path[1:]
	}
	for i := range len(path) {
		if path[i] == '/' {
			return path[:i], path[i:]
		}
	}
	return path, ""
}

func onlySlashes(path string) bool {
	part, _ := cut(path)
	return part == ""
}

func octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode&0o7777), 8) }

const atCWD = -100 // AT_FDCWD

func openat(dir int, name string, flags int) (fd int, err error) {
	for {
		fd, err = syscall.Openat(dir, name, flags|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// readlink reads the link that an O_PATH descriptor stands for.
func readlink(fd int) (string, error) {
	var empty [1]byte
	var buf [4096]byte
	n, _, errno := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	if errno != 0 {
		return "", errno
	}
	if int(n) == len(buf) {
		return "", syscall.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}
