//go:build linux && !cubby_packed

package main

import (
	"context"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/engineprogram"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin/storekeys"
)

// beEngine does not return in a process that the engine, a sandbox or a supervising
// program has started.
func beEngine(ctx context.Context) {
	engineprogram.Dispatch()
	if args := os.Args[1:]; engineprogram.Wanted(args) {
		os.Exit(engineprogram.Run(ctx, args, os.Stdin, os.Stdout, os.Stderr))
	}
}

// linkedEngine is this program itself, as `go install` builds it.
type linkedEngine struct{}

func newEngineProgram() engineProgram { return linkedEngine{} }

func (linkedEngine) engineIsLinked()                      {}
func (linkedEngine) Path(context.Context) (string, error) { return os.Executable() }
func (linkedEngine) Keys() keyadmin.Admin                 { return storekeys.Admin{} }

func (linkedEngine) Commit(_ context.Context, engine string) string {
	kind, err := engineprogram.Engines().Lookup(engine)
	if err != nil {
		return ""
	}
	return kind.Commit
}
