package gvisor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// passFlag is the flag of gVisor's boot that hands a descriptor on to code inside, as
// HOST:GUEST.
const passFlag = "--pass-fd="

// channelAt is the descriptor that a sentry has its end of the channel at. An image of the
// memory holds that number, and gVisor gives the next free one, which depends on what else
// a sentry is handed: one that begins with files has four more than one that is restored.
// gVisor puts the standard streams behind it for the same reason.
const channelAt = 252

// placeChannel moves the descriptor that a sentry hands on to channelAt, and returns the
// arguments that say so. A sentry that has executed itself again finds it there.
func placeChannel(args []string) ([]string, error) {
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, passFlag) })
	if i < 0 {
		return args, nil
	}
	host, guest, _ := strings.Cut(args[i][len(passFlag):], ":")
	fd, err := strconv.Atoi(host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[i], err)
	}
	if fd == channelAt {
		return args, nil
	}
	if err := unix.Dup3(fd, channelAt, 0); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	if err := unix.Close(fd); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	args = slices.Clone(args)
	args[i] = fmt.Sprintf("%s%d:%s", passFlag, channelAt, guest)
	return args, nil
}
