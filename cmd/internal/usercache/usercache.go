//go:build linux

// Package usercache says where Cubby keeps for its user what can be made again.
package usercache

import (
	"errors"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

// Dir returns the folder for it, which need not be there: /var/cache/cubby for root, whose
// $HOME may be another user's, else $XDG_CACHE_HOME/cubby or $HOME/.cache/cubby. It is an
// error where there is no home: users such as nobody have one that is not to be made.
func Dir() (string, error) {
	if dir := ready.CacheDir(os.Getenv); dir != "" {
		return dir, nil
	}
	return "", errors.New("this user has no home, and so no cache")
}
