//go:build linux

package guest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/sudo"
)

// Name is the base name of argv[0] under which the guest is started. A program
// that embeds this package must call Main first thing if IsGuest says so.
const Name = settings.Program

// channelFD is where the host puts the guest's end of the channel.
const channelFD = 3

// IsGuest reports whether a program that embeds this package was started as one
// of the guest's programs, by its argv[0].
func IsGuest(arg0 string) bool { return filepath.Base(arg0) == Name || sudo.Is(arg0) }

// Main is the program of process 1, and of the helpers that it starts from its own
// binary. It returns the exit status.
func Main() int {
	if sudo.Is(os.Args[0]) {
		return sudo.Main(os.Args)
	}
	if len(os.Args) > 1 && os.Args[1] == kernel.BashArg {
		return kernel.BashMain()
	}
	// Caught, not ignored: what is ignored stays so in every process of the code.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	unix.CloseOnExec(channelFD)
	if err := unix.SetNonblock(channelFD, true); err != nil {
		fmt.Fprintf(os.Stderr, "cubby-guest: no channel on descriptor %d: only cubby starts this program\n", channelFD)
		return 2
	}
	if err := Run(ctx, settings.FromEnv(), os.NewFile(channelFD, "channel")); err != nil {
		slog.Error("guest", "err", err)
		return 1
	}
	return 0
}
