//go:build linux

package container

import (
	"context"
	"errors"
	"io"
	"log"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// whenRuns calls do as soon as a process of that command runs in the container,
// and sends what came of it.
func whenRuns(t testing.TB, host, id, command string, do func(*client.Client) error) <-chan error {
	t.Helper()
	api, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	done := make(chan error, 1)
	go func() {
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			top, err := api.ContainerTop(context.Background(), id, client.ContainerTopOptions{})
			if err != nil {
				continue
			}
			for _, process := range top.Processes {
				if strings.Contains(strings.Join(process, " "), command) {
					done <- do(api)
					return
				}
			}
		}
		done <- errors.New("it never ran: " + command)
	}()
	return done
}

var quiet = log.New(io.Discard, "", 0)

func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
