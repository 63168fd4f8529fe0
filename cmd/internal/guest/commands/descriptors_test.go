//go:build linux

package commands

import (
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
)

// TestStartsWithoutDescriptors: what could not start leaves none open.
func TestStartsWithoutDescriptors(t *testing.T) {
	b := newBox(t)
	a, err := b.Settings.Account("")
	if err != nil {
		t.Fatal(err)
	}
	for name, pty := range map[string]*envd.PTY{"command": nil, "terminal": {}} {
		t.Run(name, func(t *testing.T) {
			guesttest.WithoutDescriptors(t, func() error {
				c, err := b.g.newCommand(a, &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/true"}})
				if err != nil {
					return err
				}
				if err := b.g.spawn(c, a, pty, true); err != nil {
					return err
				}
				c.run(b.Children, func() {})
				return nil
			})
		})
	}
}
