//go:build cubby_packed && linux

package guestbin

import (
	"context"
	_ "embed"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
)

// What package packed's command pack has made of the programs.
var (
	//go:embed cubby-guest.zst
	guest []byte
	//go:embed cubby-guest.sum
	guestSum string
	//go:embed cubby-typescript.zst
	typeScript []byte
	//go:embed cubby-typescript.sum
	typeScriptSum string
)

func guestProgram() packed.Program { return packed.New("cubby-guest", guestSum, guest, "") }

func typeScriptProgram() packed.Program {
	return packed.New("cubby-typescript", typeScriptSum, typeScript, "")
}

// Content stands for the content of both programs: others have another.
func Content() string { return guestProgram().SHA256 + typeScriptProgram().SHA256 }

// Open provides the guest, as packed.Open does. runDir is where it is unpacked if there
// is no cache.
func Open(ctx context.Context, runDir string) (*packed.Located, error) {
	return packed.Open(ctx, guestProgram(), packed.Options{RunDir: runDir})
}

// OpenTypeScript does the same with the program that package typescript describes.
func OpenTypeScript(ctx context.Context, runDir string) (*packed.Located, error) {
	return packed.Open(ctx, typeScriptProgram(), packed.Options{RunDir: runDir})
}

// Dispatch does nothing: this program is none of those that it has packed.
func Dispatch() {}

// Programs are those that are packed in this one.
func Programs() []packed.Program { return []packed.Program{guestProgram(), typeScriptProgram()} }
