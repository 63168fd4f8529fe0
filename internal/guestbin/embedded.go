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

	"github.com/klauspost/compress/zstd"
)

//go:embed guest.zst
var packed []byte

// Path unpacks the embedded guest into the user's cache, once for each build,
// and returns where it is.
func Path() (string, error) {
	sum := sha256.Sum256(packed)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // no home: a cache of this user's in the common place
		cache = filepath.Join(cache, fmt.Sprintf("cubby-cache-%d", os.Getuid()))
	}
	dir := filepath.Join(cache, "cubby")
	path := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:8]))
	if intact(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("unpack guest: %w", err)
	}
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

// intact reports whether the guest was unpacked, by us, and is nobody else's to
// change.
func intact(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode().Perm() == 0o755 && ownedByUs(fi)
}
