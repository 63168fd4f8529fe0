//go:build linux

package main

import (
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor"
)

// engines are those that this command is linked with.
func engines() engine.Table { return engine.Table{gvisor.Name: gvisor.Kind()} }

// defaultEngine is the name of the one that is taken if none is asked for.
const defaultEngine = gvisor.Name

const engineUsage = "`name` of what keeps sandboxes apart"

// checkEngine is for the flag --engine.
func checkEngine(name string) error {
	if _, err := engines().Lookup(name); err != nil {
		return usagef("--engine: %w", err)
	}
	return nil
}
