// Package guestversion names what an engine and the guest in its sandboxes agree on.
// A host refuses a guest of another build.
package guestversion

import (
	"sync"

	libinternal "github.com/cubby-sandbox/cubby/internal"
	"github.com/cubby-sandbox/cubby/internal/version"

	"github.com/cubby-sandbox/cubby/cmd/internal"
)

// Build is the version with a hash of what engine and guest say to each other, as
// version.Build is of what a program and its engine do.
var Build = sync.OnceValue(func() string { return version.Of(libinternal.Contract, internal.Contract) })
