//go:build linux

package kernelproc

import (
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

func TestMain(m *testing.M) { guesttest.Main(m, nil) }

// TestStartsWithoutDescriptors: what could not start leaves none open.
func TestStartsWithoutDescriptors(t *testing.T) {
	b := guesttest.New(t)
	guesttest.Must(t, kernel.Write(b.Settings.Config.KernelDir))
	var wg sync.WaitGroup
	defer wg.Wait()
	guesttest.WithoutDescriptors(t, func() error {
		k, err := Start(b.Settings, b.Children, &wg, kernel.Bash("/bin/bash", b.Settings.Config.KernelDir), b.Home)
		if err == nil {
			k.Stop()
			<-k.Ended
		}
		return err
	})
}
