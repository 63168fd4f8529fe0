//go:build !cubby_guest

package guestbin

import "os"

// Path returns the running program: it dispatches to the guest by its name.
func Path(string) (string, error) { return os.Executable() }
