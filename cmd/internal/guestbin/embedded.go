//go:build cubby_guest

package guestbin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/cubby-sandbox/cubby/cmd/internal/usercache"
)

//go:embed guest.zst
var packed []byte

// Content stands for the guest's content: another guest has another.
var Content = sync.OnceValue(func() string {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:])
})

// Path returns the guest, unpacked once for each build into the user's cache,
// or into the folder fallback where there is no cache to write to.
func Path(fallback string) (string, error) {
	name := "guest-" + Content()[:16]
	if cache, err := usercache.Dir(); err == nil {
		if path, err := unpack(cache, name); err == nil {
			return path, nil
		}
	}
	return unpack(fallback, name)
}

func unpack(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if intact(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("unpack guest: %w", err)
	}
	sweep(dir)
	zr, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("unpack guest: %w", err)
	}
	defer zr.Close()
	tmp, err := os.CreateTemp(dir, "guest-*.tmp")
	if err != nil {
		return "", fmt.Errorf("unpack guest: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, zr)
	if err == nil {
		err = tmp.Chmod(0o755)
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("unpack guest: %w", err)
	}
	return path, nil
}

// unused is the age at which another build's guest is removed. If that build is
// used again it unpacks its guest again; running sandboxes keep the file.
const unused = 24 * time.Hour

// sweep removes the guests of other builds, or each build would leave its own.
func sweep(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, "guest-*"))
	for _, path := range old {
		if fi, err := os.Lstat(path); err == nil && time.Since(fi.ModTime()) > unused {
			os.Remove(path)
		}
	}
}

// intact reports whether the guest was unpacked, by us, and is nobody else's to
// change.
func intact(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode().Perm() == 0o755 && ownedByUs(fi)
}
