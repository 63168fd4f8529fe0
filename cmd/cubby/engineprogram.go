package main

import (
	"context"

	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
)

// engineProgram is the program in which sandboxes live: packed into this one, linked
// into it, or not there at all.
type engineProgram interface {
	// Path is what to start: a path that stays good as long as this process lives,
	// which may be one of its descriptors.
	Path(ctx context.Context) (string, error)
	// Commit is the version of the engine of that name, empty if it cannot be told.
	Commit(ctx context.Context, engine string) string
	// Keys edits the keys of servers on this machine.
	Keys() keyadmin.Admin
}
