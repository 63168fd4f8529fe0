//go:build !amd64

package precomp

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// Generating needs a machine of the architecture; until there is one, filters
// are compiled at start.

func boot() map[string]precompiledseccomp.Program  { return nil }
func gofer() map[string]precompiledseccomp.Program { return nil }
