package early

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDonated(t *testing.T) {
	for args, want := range map[string]int{
		"runsc-gofer --root=/x gofer --spec-fd=3 --mounts-fd=4 --io-fds=8 --sync-chroot-fd=9 id":       9,
		"runsc-sandbox boot --io-fds=5,6,17 --pass-fd=12:3 --log-fd=-1 --stdio-fds=7,8,9 --cpu-num=64": 17,
		"runsc-sandbox boot --pass-fd=20:3": 20,
		"runsc-sandbox":                     2,
	} {
		if got := donated(strings.Fields(args)); got != want {
			t.Errorf("%s: %d, want %d", args, got, want)
		}
	}
}

// TestCloseInherited: what another sandbox may be reached by is closed, and what
// was handed over, or opened by the process itself, is not.
func TestCloseInherited(t *testing.T) {
	memory, err := unix.MemfdCreate("handed-over", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	foreign, err := unix.MemfdCreate("foreign", 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	closeInherited("/proc/self/fd", memory)
	open := func(fd int) bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil
	}
	if !open(memory) || !open(int(file.Fd())) {
		t.Error("what is its own was closed")
	}
	if open(foreign) || open(pair[0]) || open(pair[1]) {
		t.Error("what is foreign was left open")
	}
}
