package main

import "github.com/cubby-sandbox/cubby/cmd/internal/enginename"

const engineUsage = "`name` of what keeps sandboxes apart"

// checkEngine is for the flag --engine.
func checkEngine(name string) error {
	if err := enginename.Check(name); err != nil {
		return usagef("--engine: %w", err)
	}
	return nil
}
