//go:build amd64 || arm64

package entry

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNeeds: what is told of a limit that is too small says which, how much it
// should be and what to do. What the entry does with it is tested with the program
// itself, in cmd/cubby.
func TestNeeds(t *testing.T) {
	for i, want := range []struct {
		resource   uint64
		name, flag string
		unit       uint64 // of the number that is told
	}{
		{unix.RLIMIT_AS, "RLIMIT_AS", "-v", 1 << 20},
		{unix.RLIMIT_DATA, "RLIMIT_DATA", "-d", 1 << 20},
		{unix.RLIMIT_NOFILE, "RLIMIT_NOFILE", "-n", 1},
		{unix.RLIMIT_NPROC, "RLIMIT_NPROC", "-u", 1}, // the last: the entry leaves it out for root
	} {
		n := needs[i]
		if n.resource != want.resource {
			t.Errorf("%s: resource %d, want %d", want.name, n.resource, want.resource)
		}
		for _, text := range []string{"(" + want.name + ")", "`ulimit " + want.flag + " ", fmt.Sprintf(" than %d ", n.least/want.unit)} {
			if !strings.Contains(n.told, text) {
				t.Errorf("%q is not in %s", text, n.told)
			}
		}
		if !strings.HasPrefix(n.told, "cubby: ") || strings.Count(n.told, "\n") != 2 || !strings.HasSuffix(n.told, "\n") {
			t.Errorf("not a message and a hint: %q", n.told)
		}
	}
	if len(needs) != 4 {
		t.Errorf("%d needs, of which 4 are tested", len(needs))
	}
}

// TestKeepClosed: a program without the entry has all its streams.
func TestKeepClosed(t *testing.T) {
	if err := KeepClosed(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString(""); err != nil {
		t.Error(err)
	}
	if flags, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY {
		t.Errorf("standard output has flags %#x, %v", flags, err)
	}
}
