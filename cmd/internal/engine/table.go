//go:build linux

package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/cgroup"
)

// Config says where an engine keeps its files, and what it may use. An engine takes
// what concerns it.
type Config struct {
	// StateDir holds what the engine keeps of its machines: sockets, descriptions.
	// It must exist, be empty, have a short path, and be traversable by every user
	// (mode 0711).
	StateDir string
	// OverlayDir is on the disk that takes what machines write. Nothing is left there.
	OverlayDir string
	// Helper is a statically linked binary whose main calls Table.Dispatch with this
	// engine in it; empty means the running program.
	Helper string
	// Cgroups places machines, and is the caller's to close when they have ended;
	// nil means that there are none here.
	Cgroups *cgroup.Manager
	// Logger takes the engine's messages; nil discards them.
	Logger *slog.Logger
	// DebugLog is a folder for logs of each machine; empty means none.
	DebugLog string
}

// Kind is an engine that a program has, not opened yet.
type Kind struct {
	// Commit is what the opened engine's will be.
	Commit string
	// Open returns the engine. It is called once in a process.
	Open func(Config) (Engine, error)
	// Dispatch does what the engine wants of this process if the engine has started
	// it, and does not return then; nil if it starts none.
	Dispatch func()
	// IsHelper reports whether a process with that first argument is one that the
	// engine has started for a machine, and that can be killed to end it; nil if
	// there are none.
	IsHelper func(arg0 string) bool
}

// Table is the engines that a program has, by name. It is not changed once made.
type Table map[string]Kind

// ErrUnknown is a name that is not in a Table.
var ErrUnknown = errors.New("no such engine")

// Dispatch does what any of the engines wants of this process, and does not return
// then. It comes first in main.
func (t Table) Dispatch() {
	for _, kind := range t {
		if kind.Dispatch != nil {
			kind.Dispatch()
		}
	}
}

// Lookup returns the engine of that name. An unknown one is an error that wraps
// ErrUnknown and lists those there are.
func (t Table) Lookup(name string) (Kind, error) {
	kind, ok := t[name]
	if !ok {
		return Kind{}, fmt.Errorf("%w: %q (there is %s)", ErrUnknown, name, strings.Join(slices.Sorted(maps.Keys(t)), ", "))
	}
	return kind, nil
}

// Open opens the engine of that name, as Lookup finds it.
func (t Table) Open(name string, cfg Config) (Engine, error) {
	kind, err := t.Lookup(name)
	if err != nil {
		return nil, err
	}
	return kind.Open(cfg)
}
