// Package guestversion names what an engine and the guest in its sandboxes agree on.
// A host refuses a guest of another build.
package guestversion

import (
	"strings"
	"sync"

	libinternal "github.com/cubby-sandbox/cubby/internal"
	"github.com/cubby-sandbox/cubby/internal/version"

	"github.com/cubby-sandbox/cubby/cmd/internal"
)

// Build is the version with a hash of what engine and guest say to each other, as
// version.Build is of what a program and its engine do.
var Build = sync.OnceValue(func() string { return version.Of(libinternal.Contract, internal.Contract) })

// Fits reports whether a guest that says it is of that build understands the engine: that
// takes the same contract, and no more. One that was restored may be of an earlier version.
func Fits(build string) bool {
	_, contract, _ := strings.Cut(build, "+")
	_, own, _ := strings.Cut(Build(), "+")
	return contract == own
}
