//go:build linux

package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSandboxMemory: memory of a sandbox that has ended is found where this
// process, or one below it, holds it; a sandbox's kernel may.
func TestSandboxMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		file   string
		holder string // name of a process that has the file as its standard input
		found  bool
	}{
		"this process":          {file: "runsc-memory", found: true},
		"a server below":        {file: "runsc-memory", holder: "cubby", found: true},
		"a kernel, too":         {file: "runsc-memory", holder: "runsc-sandbox"},
		"other memory of ours":  {file: "cubby"},
		"other memory of below": {file: "cubby", holder: "cubby"},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.MemfdCreate(tt.file, unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			file := os.NewFile(uintptr(fd), tt.file)
			defer file.Close()
			if tt.holder != "" {
				cmd := exec.Command("/bin/sleep", "60")
				cmd.Args[0] = tt.holder
				cmd.Stdin = file
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer cmd.Wait()
				defer cmd.Process.Kill()
			}
			found := sandboxMemory()
			if tt.found != (len(found) == 1) || len(found) > 1 {
				t.Errorf("found %q", found)
			}
			if tt.found && !strings.Contains(found[0], tt.file) {
				t.Errorf("%q does not name it", found[0])
			}
		})
	}
}
