//go:build linux

package files

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

// What an upload says of a file in X-Metadata-* headers is kept in the file's
// extended attributes, so it follows the file wherever it goes. The bounds are
// E2B's: Linux's for a name, a block of ext4 for all together.
const (
	metadataHeader = "X-Metadata-"
	metadataPrefix = "user.e2b."
	maxMetadataKey = 255 - len(metadataPrefix)
	maxMetadata    = 4096 // bytes of a file's attributes, names with prefix and values
	maxAttributes  = 64 << 10
)

// readMetadataHeaders returns what the X-Metadata-* headers of an upload say. Keys
// are lower-case; of several values the first counts.
func readMetadataHeaders(h http.Header) (map[string]string, error) {
	var m map[string]string
	total := 0
	for name, values := range h {
		if len(name) <= len(metadataHeader) || !strings.EqualFold(name[:len(metadataHeader)], metadataHeader) || len(values) == 0 {
			continue
		}
		key, value := strings.ToLower(name[len(metadataHeader):]), values[0]
		switch {
		case len(key) > maxMetadataKey:
			return nil, badRequest("the metadata key '%s' is longer than %d bytes", reply.Cut(key), maxMetadataKey)
		case !printable(key):
			return nil, badRequest("the metadata key '%s' is not printable ASCII", reply.Cut(key))
		case !printable(value):
			return nil, badRequest("the metadata value of '%s' is not printable ASCII", key)
		}
		if total += len(metadataPrefix) + len(key) + len(value); total > maxMetadata {
			return nil, badRequest("the metadata is larger than %d bytes", maxMetadata)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[key] = value
	}
	return m, nil
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
}

// noAttributes says whether an error means that a file cannot have attributes, as
// those of /proc and /sys.
func noAttributes(err error) bool { return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) }

// writeMetadata replaces the metadata of an open file, also by nothing: whoever
// writes a file anew does not speak of the old content. False means that the file
// system keeps none.
func writeMetadata(f *os.File, m map[string]string) (kept bool, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	ctlErr := conn.Control(func(fd uintptr) { err = replaceAttributes(int(fd), m) })
	switch {
	case ctlErr != nil:
		return false, ctlErr
	case noAttributes(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("keep the metadata: %w", err)
	}
	return true, nil
}

func replaceAttributes(fd int, m map[string]string) error {
	old, err := attributes(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) })
	if err != nil {
		return err
	}
	for _, key := range old {
		if _, stays := m[key]; stays {
			continue
		}
		if err := unix.Fremovexattr(fd, metadataPrefix+key); err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
	}
	for key, value := range m {
		if err := unix.Fsetxattr(fd, metadataPrefix+key, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// readMetadata returns the metadata of a file. The code may have set attributes of
// its own under the same prefix: what is no text or goes beyond the bounds is left
// out.
func readMetadata(name string) map[string]string {
	keys, err := attributes(func(b []byte) (int, error) { return unix.Llistxattr(name, b) })
	if err != nil || len(keys) == 0 {
		return nil
	}
	m, total := map[string]string{}, 0
	value := make([]byte, maxMetadata)
	for _, key := range keys {
		n, err := unix.Lgetxattr(name, metadataPrefix+key, value)
		if err != nil || key == "" || !utf8.ValidString(key) || !utf8.Valid(value[:n]) {
			continue
		}
		if total += len(metadataPrefix) + len(key) + n; total > maxMetadata {
			break
		}
		m[key] = string(value[:n])
	}
	return m
}

// attributes returns the names of attributes that are metadata, without their
// prefix.
func attributes(list func([]byte) (int, error)) ([]string, error) {
	size, err := list(nil)
	if err != nil || size == 0 {
		return nil, err
	}
	b := make([]byte, min(size, maxAttributes))
	n, err := list(b)
	if err != nil {
		return nil, err
	}
	var keys []string
	for name := range bytes.SplitSeq(b[:n], []byte{0}) {
		if key, ours := bytes.CutPrefix(name, []byte(metadataPrefix)); ours {
			keys = append(keys, string(key))
		}
	}
	return keys, nil
}
