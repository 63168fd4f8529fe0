//go:build linux

package ready

import (
	"strconv"
	"syscall"
)

// NotesName is the file of notes in a folder. Each line says of one file which content a
// hash has found in it: what identifies the file and changes with its content, and the
// SHA-256 in hex. No user but root can set the time of a file's last change (ctime), and
// the file of notes is trusted as programs are.
const NotesName = "notes"

// MaxNotes bounds the file of notes, in lines and in bytes.
const (
	MaxNotes     = 32
	maxNotesSize = 8 << 10
)

// Key is what a note has of a file, before its hash. The owner is not in it: in a user
// namespace he has another number.
func Key(st *syscall.Stat_t) string {
	key := make([]byte, 0, 160)
	for _, n := range [...]int64{
		int64(st.Dev), int64(st.Ino), st.Size, int64(st.Mode),
		int64(st.Mtim.Sec), int64(st.Mtim.Nsec), int64(st.Ctim.Sec), int64(st.Ctim.Nsec),
	} {
		key = strconv.AppendInt(key, n, 10)
		key = append(key, ' ')
	}
	return string(key)
}

// Notes are those that may speak of a file: of its own folder, and of the cache.
type Notes struct {
	cache  string
	cached string // text of the cache's notes
	read   bool
}

// NotesIn also looks into the notes of a cache folder.
func NotesIn(cache string) *Notes { return &Notes{cache: cache} }

// Sum is the SHA-256 that a note says a file has, in hex; empty without a note.
func (n *Notes) Sum(f File) string {
	key := Key(&f.Stat)
	if sum := Lookup(ReadNotes(f.Dir), key); sum != "" {
		return sum
	}
	if !n.read && n.cache != "" {
		if dir, err := Folder(n.cache); err == nil {
			n.cached = ReadNotes(dir)
			syscall.Close(dir)
		}
		n.read = true
	}
	return Lookup(n.cached, key)
}

// ReadNotes returns the text of a folder's notes; empty if they are not to be trusted.
func ReadNotes(dir int) string {
	fd, err := openat(dir, NotesName, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || !owner(st.Uid) || st.Mode&0o022 != 0 ||
		st.Size > maxNotesSize {
		return ""
	}
	buf := make([]byte, st.Size)
	got := 0
	for got < len(buf) {
		n, err := syscall.Read(fd, buf[got:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		got += n
	}
	return string(buf[:got])
}

// Lookup returns the hash of the line that begins with the key; empty without one.
func Lookup(text, key string) string {
	const digits = 64
	for len(text) > 0 {
		end := 0
		for end < len(text) && text[end] != '\n' {
			end++
		}
		if end == len(text) {
			return "" // the last line was not written to its end
		}
		line := text[:end]
		text = text[end+1:]
		if len(line) == len(key)+digits && line[:len(key)] == key {
			return line[len(key):]
		}
	}
	return ""
}
