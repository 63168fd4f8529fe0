//go:build linux

package commands

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// openPTY returns both ends of a new pseudoterminal, the slave's of user a. The
// master's reads and writes can be given up.
func (s *Service) openPTY(a settings.Account) (_, _ *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	defer func() {
		if err != nil {
			_ = master.Close()
		}
	}()
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("number of the terminal: %w", err)
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open the terminal: %w", err)
	}
	if s.settings.Config.SwitchUser {
		// Programs that open it by name need it; those that inherit it do not.
		_ = slave.Chown(a.UID, a.GID)
	}
	return master, slave, nil
}

// defaultSize is of a terminal whose size nobody said.
var defaultSize = unix.Winsize{Row: 24, Col: 80}

func windowSize(p *envd.PTY) (unix.Winsize, error) {
	s := p.GetSize()
	if s == nil {
		return defaultSize, nil
	}
	if s.GetCols() > math.MaxUint16 || s.GetRows() > math.MaxUint16 {
		return unix.Winsize{}, fmt.Errorf("a terminal has no %d columns and %d rows: 65535 are the most", s.GetCols(), s.GetRows())
	}
	return unix.Winsize{Row: uint16(s.GetRows()), Col: uint16(s.GetCols())}, nil
}

// resize sets the size of a terminal, and so tells what runs on it.
func resize(f *os.File, size unix.Winsize) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	return errors.Join(err, failed)
}
