//go:build !linux

package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
)

func beEngine(context.Context) {}

// noEngine says what to use where sandboxes cannot run.
type noEngine struct{}

func newEngineProgram() engineProgram { return noEngine{} }

func needsLinux(op, hint string) error {
	return &cubby.Error{Op: op, Code: cubby.CodeUnimplemented,
		Err: errors.New("sandboxes run on Linux only, this is " + runtime.GOOS), Hint: hint}
}

func (noEngine) Path(context.Context) (string, error) {
	return "", needsLinux("run", "`cubby run --server=URL` runs the code on a Cubby server on Linux")
}

func (noEngine) Commit(context.Context, string) string { return "" }
func (noEngine) Keys() keyadmin.Admin                  { return noKeys{} }

// noKeys refuses: servers keep their keys where they run.
type noKeys struct{}

func (noKeys) refuse() error {
	return needsLinux("keys", "run `cubby keys` on the machine of the server")
}

func (n noKeys) Create(context.Context, string, string, string) (keyadmin.Key, string, error) {
	return keyadmin.Key{}, "", n.refuse()
}

func (n noKeys) List(context.Context, string) ([]keyadmin.Key, error) { return nil, n.refuse() }

func (n noKeys) Revoke(context.Context, string, string) (keyadmin.Key, error) {
	return keyadmin.Key{}, n.refuse()
}

func newServe(stdio, engineProgram) *cobra.Command {
	return &cobra.Command{
		Use:                "serve",
		Short:              "Serve sandboxes over E2B's protocol (on Linux)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return needsLinux("serve", "start it on Linux (a virtual machine or a container will do), and use it here with --server=URL")
		},
	}
}

func newDoctor(stdio, opener, engineProgram) *cobra.Command {
	return &cobra.Command{
		Use:                "doctor",
		Short:              "Say what this machine can do (on Linux)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return needsLinux("doctor", "use a Cubby server on Linux: `cubby run --server=URL`; `cubby agent --executor container` runs code in Docker")
		},
	}
}
