//go:build linux

// Package ready finds a program of Cubby's that lies unpacked on this machine, and
// judges it: whether it may be run, and whether its content is what was packed.
//
// It imports package syscall and little else, so that a program can look for another
// one, and become it, before its other packages are initialised. It never computes a
// hash and never writes: package packed does both, and leaves notes for this one.
//
// What is judged is a descriptor, and the caller runs that descriptor. Folders are
// walked one by one, each opened from the one above it, so that nothing that is
// renamed meanwhile leads elsewhere.
package ready

import (
	"strconv"
	"syscall"
)

// Want is the program that is looked for.
type Want struct {
	Name     string // of its file, such as "cubby-engine"
	SHA256   string // of its content, in hex
	Size     int64  // bytes
	Variable string // of the environment, which may name its file; empty for none
}

// FileName is the name of the unpacked program in a folder that holds several versions.
func (w Want) FileName() string { return w.Name + "-" + w.SHA256[:min(16, len(w.SHA256))] }

// ParseSum reads what the packer wrote: the SHA-256 in hex, a space, the length.
func ParseSum(text string) (sha256 string, size int64, ok bool) {
	const digits = 64
	if len(text) < digits+2 || text[digits] != ' ' {
		return "", 0, false
	}
	for _, c := range []byte(text[:digits]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", 0, false
		}
	}
	rest := text[digits+1:]
	if rest[len(rest)-1] == '\n' {
		rest = rest[:len(rest)-1]
	}
	size, err := strconv.ParseInt(rest, 10, 64)
	return text[:digits], size, err == nil && size > 0
}

// Ready returns a descriptor of the program, open for reading, close-on-exec, with a
// shared lock (flock) that keeps other versions from removing the file. It looks at the
// places that package packed names first, in the same order, and believes the notes that
// package packed has left. ok is false where the program is not unpacked yet, and where
// only a hash can tell; the caller then asks package packed.
func Ready(w Want) (fd int, ok bool) { return Find(w, Surroundings(w.Variable)) }

// Place is where one process looks.
type Place struct {
	Explicit string   // the value of Want.Variable
	Beside   []string // folders in which the program has its plain name
	Cache    string   // folder with several versions; empty for none
}

// Surroundings are the places of the running process.
func Surroundings(variable string) Place {
	p := Place{Beside: Beside(Program()), Cache: CacheDir(getenv)}
	if variable != "" {
		p.Explicit = getenv(variable)
	}
	return p
}

func getenv(name string) string {
	value, _ := syscall.Getenv(name)
	return value
}

// Find is Ready for places of the caller's choice.
func Find(w Want, p Place) (fd int, ok bool) {
	notes := Notes{cache: p.Cache}
	if p.Explicit != "" {
		f, err := OpenPath(p.Explicit)
		if err != nil {
			return -1, false
		}
		return w.take(f, &notes)
	}
	for _, dir := range p.Beside {
		if !Exists(dir + "/" + w.Name) {
			continue // the usual case, in one system call
		}
		f, err := OpenIn(dir, w.Name)
		if err != nil {
			continue
		}
		if w.Judge(f) != nil {
			f.Close()
			continue // another build, or not to be trusted
		}
		switch sum := notes.Sum(f); sum {
		case w.SHA256:
			return f.keep(), true
		case "":
			f.Close()
			return -1, false
		}
		f.Close() // known to be another build
	}
	if p.Cache == "" {
		return -1, false
	}
	f, err := OpenIn(p.Cache, w.FileName())
	if err != nil {
		return -1, false
	}
	if f.Stat.Mode&0o7777 != Mode {
		f.Close()
		return -1, false
	}
	return w.take(f, &notes)
}

// take returns the descriptor of a file that fits, and closes another.
func (w Want) take(f File, notes *Notes) (int, bool) {
	if w.Judge(f) != nil || notes.Sum(f) != w.SHA256 {
		f.Close()
		return -1, false
	}
	return f.keep(), true
}

// keep is the descriptor, for the caller, with the lock.
func (f File) keep() int {
	syscall.Close(f.Dir)
	Lock(f.FD)
	return f.FD
}

// Lock takes the shared lock of whoever uses a file. It does without where the lock
// cannot be had: at worst the file's name is removed while it is in use.
func Lock(fd int) { _ = syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) }

// Exec becomes the program of the descriptor, which stays open in it so that the lock
// is kept; Adopt is its part. It returns only if that failed.
func Exec(fd int, argv, env []string) error {
	// As descriptor FD, where the program looks for it.
	if err := syscall.Dup3(fd, FD, 0); err != nil && err != syscall.EINVAL {
		return err
	} else if err == syscall.EINVAL { // it is FD already
		if err := setCloseOnExec(FD, false); err != nil {
			return err
		}
	}
	return syscall.Exec("/proc/self/fd/"+strconv.Itoa(FD), argv, env)
}

// FD is the descriptor by which a program holds the lock of its own file. Those below are
// package handshake's.
const FD = 7

// Adopt marks descriptor FD close-on-exec if it is the running program's own file: the
// lock is kept as long as this process runs, and no longer than that.
func Adopt() {
	var own, held syscall.Stat_t
	if syscall.Fstat(FD, &held) == nil && syscall.Stat("/proc/self/exe", &own) == nil && own.Dev == held.Dev && own.Ino == held.Ino {
		_ = setCloseOnExec(FD, true)
	}
}

func setCloseOnExec(fd int, on bool) error {
	flag := 0
	if on {
		flag = syscall.FD_CLOEXEC
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, uintptr(flag)); errno != 0 {
		return errno
	}
	return nil
}
