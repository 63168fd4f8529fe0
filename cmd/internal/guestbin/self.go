//go:build !cubby_guest

package guestbin

import (
	"fmt"
	"os"
)

// Path returns the running program: it dispatches to the guest by its name.
func Path(string) (string, error) { return os.Executable() }

// Content stands for the guest's content: another guest has another. To read a
// program of 60 MB at each start would be too slow, so it goes by size and date.
func Content() string {
	path, err := Path("")
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of %d", info.Size(), info.ModTime().UnixNano())
}
