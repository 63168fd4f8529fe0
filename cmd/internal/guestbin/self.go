//go:build !cubby_packed && linux

package guestbin

import (
	"context"
	"fmt"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript/transform"
)

// Dispatch is the guest, or TypeScript's compiler, if this process was started as that.
// It does not return then.
func Dispatch() {
	switch {
	case typescript.Is(os.Args[0]):
		os.Exit(transform.Main())
	case guest.IsGuest(os.Args[0]):
		os.Exit(guest.Main())
	}
}

// OpenTypeScript opens the running program, as Open does.
func OpenTypeScript(ctx context.Context, runDir string) (*packed.Located, error) {
	return Open(ctx, runDir)
}

// Open opens the running program.
func Open(context.Context, string) (*packed.Located, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &packed.Located{File: file, Path: path, From: packed.FromBeside}, nil
}

// Content stands for the content of both: others have another. To read a
// program of 60 MB at each start would be too slow, so it goes by size and date.
func Content() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of %d", info.Size(), info.ModTime().UnixNano())
}

// Programs are those that are packed in this one: none.
func Programs() []packed.Program { return nil }
