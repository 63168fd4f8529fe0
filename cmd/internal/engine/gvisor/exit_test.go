package gvisor

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessEndWithin: a process that is about to end is waited for, one that goes
// on is not for long.
func TestProcessEndWithin(t *testing.T) {
	for _, test := range []struct {
		name, script string
		within       time.Duration
		want         end
		err          error
	}{
		{"ends later", "sleep 0.2; exit 3", time.Minute, end{status: 3}, nil},
		{"is killed later", "sleep 0.2; kill -9 $$", time.Minute, end{signal: unix.SIGKILL}, nil},
		{"goes on", "exec sleep 60", time.Millisecond, end{}, errAlive},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", test.script)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			if got, err := processEndWithin(cmd.Process.Pid, test.within); got != test.want || err != test.err {
				t.Errorf("got %+v, %v, want %+v, %v", got, err, test.want, test.err)
			}
		})
	}
}
