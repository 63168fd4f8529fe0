//go:build unix

package userstate

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/fileowner"
)

// own refuses what is not this user's. Root's is not, either: what sudo left in a user's
// home cannot be written there.
func own(name string, info fs.FileInfo) error {
	if uid, other := fileowner.Other(info); other || uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to the user with the id %d", name, uid)
	}
	return nil
}
