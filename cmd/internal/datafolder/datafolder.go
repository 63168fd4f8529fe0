// Package datafolder says where a server keeps keys and records if it is not told.
package datafolder

import (
	"errors"
	"path/filepath"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Default returns the data folder of a user who names none: /var/lib/cubby
// for root, else cubby in $XDG_DATA_HOME or ~/.local/share.
func Default(getenv func(string) string, uid int) (string, error) {
	if uid == 0 {
		return "/var/lib/cubby", nil
	}
	// The specification has relative paths ignored.
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cubby"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "cubby"), nil
	}
	return "", &fault.Error{Op: "open database", Code: fault.Unavailable,
		Err: errors.New("no data folder: HOME is not set"), Hint: "give one with --data-dir"}
}
