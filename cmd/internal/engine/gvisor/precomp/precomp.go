// Package precomp gives gVisor the precompiled seccomp programs that its
// Go-module branch lacks (upstream's Bazel build generates them). Without them
// each sentry and each gofer compiles its filter at start: about 20 ms of
// processor time.
//
// A program's name holds every option that it was compiled for, so one that is
// missing here is compiled at start as before: slower, never weaker. Run `go
// generate` after each change of the gVisor version in go.mod; a test fails if
// that was forgotten.
package precomp

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	bootfilter "gvisor.dev/gvisor/runsc/boot/filter"
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

//go:generate go run generate.go

//go:linkname bootPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var bootPrograms map[string]precompiledseccomp.Program

//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferPrograms map[string]precompiledseccomp.Program

// Install makes the programs known to gVisor. Only a process that is about to
// become a sentry or a gofer calls it, once.
func Install() {
	// Listing fires the sync.Once that would otherwise overwrite the tables.
	bootfilter.ListPrecompiled()
	goferfilter.ListPrecompiled()
	bootPrograms, goferPrograms = boot(), gofer()
}
