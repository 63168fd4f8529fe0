//go:build linux

package plainproc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript/transform"
)

// guestArg makes a program that calls Dispatch the guest of a machine.
const guestArg = "plainproc-guest"

// Dispatch makes this process Cubby's guest if an engine started it as that, and does
// not return then. It comes first in the TestMain of tests that use Args.
func Dispatch() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == guestArg:
		if err := runGuest(); err != nil {
			fmt.Fprintln(os.Stderr, "plainproc: guest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	case typescript.Is(os.Args[0]):
		os.Exit(transform.Main())
	case guest.IsGuest(os.Args[0]): // what the guest starts of its own program
		os.Exit(guest.Main())
	}
}

// Args is the first process of a machine with Cubby's guest: this program.
func Args() ([]string, error) {
	self, err := os.Executable()
	return []string{self, guestArg}, err
}

// runGuest is the guest as a plain process, of whoever started it. The working
// directory has its folders.
func runGuest() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	cfg := settings.FromEnv()
	cfg.UID, cfg.GID, cfg.SwitchUser, cfg.Init = uint32(os.Getuid()), uint32(os.Getgid()), false, false
	cfg.Home, cfg.KernelDir = filepath.Join(dir, "home"), filepath.Join(dir, "kernels")
	if cfg.TypeScript, err = os.Executable(); err != nil {
		return err
	}
	if err := os.Mkdir(cfg.Home, 0o700); err != nil {
		return err
	}
	// What its processes leave behind stays below it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	const channelFD = 3
	unix.CloseOnExec(channelFD)
	if err := unix.SetNonblock(channelFD, true); err != nil {
		return err
	}
	return guest.Run(context.Background(), cfg, os.NewFile(channelFD, "channel"))
}
