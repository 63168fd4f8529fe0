// Package usercache says where Cubby keeps for its user what can be made again.
package usercache

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dir returns the folder for it, which need not be there: $XDG_CACHE_HOME/cubby or
// $HOME/.cache/cubby. It is an error where there is no home: users such as nobody
// have one that is not to be made, and root, who could make it, may have that name
// in its environment.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(filepath.Dir(cache)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("no cache below %s: there is no such folder", filepath.Dir(cache))
	}
	return filepath.Join(cache, "cubby"), nil
}
