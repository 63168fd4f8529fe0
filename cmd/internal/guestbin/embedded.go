//go:build cubby_guest && linux

package guestbin

import (
	"context"
	_ "embed"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
)

// What package packed's command pack has made of the guest.
var (
	//go:embed cubby-guest.zst
	compressed []byte
	//go:embed cubby-guest.sum
	sum string
)

func program() packed.Program { return packed.New("cubby-guest", sum, compressed, "") }

// Content stands for the guest's content: another guest has another.
func Content() string { return program().SHA256 }

// Open provides the guest, as packed.Open does. runDir is where it is unpacked if there
// is no cache.
func Open(ctx context.Context, runDir string) (*packed.Located, error) {
	return packed.Open(ctx, program(), packed.Options{RunDir: runDir})
}
