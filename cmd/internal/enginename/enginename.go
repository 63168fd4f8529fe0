// Package enginename has the names of the engines that Cubby is built with, for the
// command line, which links none of them.
package enginename

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Default is the name of the engine that is taken if none is asked for.
const Default = "gvisor"

// ErrUnknown is a name that no engine has.
var ErrUnknown = errors.New("no such engine")

// All returns the names, sorted.
func All() []string { return []string{Default} }

// Check returns an error that wraps ErrUnknown and lists the names there are if name
// is none of them.
func Check(name string) error {
	if all := All(); !slices.Contains(all, name) {
		return fmt.Errorf("%w: %q (there is %s)", ErrUnknown, name, strings.Join(all, ", "))
	}
	return nil
}
