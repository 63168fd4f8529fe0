//go:build linux && cubby_packed

package enginebin

import (
	_ "embed"
	"os"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/internal/handshake"
)

// What package packed's command pack has made of the engine's program.
var (
	//go:embed cubby-engine.zst
	compressed []byte
	//go:embed cubby-engine.sum
	sum string
	//go:embed cubby-engine.modules
	modules string
)

const (
	name     = "cubby-engine"
	variable = "CUBBY_ENGINE" // may name the program's file
)

// Compressed is the program as package packed unpacks it, Sum its hash and length, and
// Modules what it is built from, as `go version -m` has it.
func Compressed() []byte { return compressed }
func Sum() string        { return sum }
func Modules() string    { return modules }

// Name is the program's, and Variable the one of the environment that may name its file.
func Name() string     { return name }
func Variable() string { return variable }

// A program that embeds Cubby starts this one to be its engine. Go initialises packages
// whose dependencies are ready in the order of their import paths: this one is done
// before the command line's libraries begin.
func init() {
	if len(os.Args) == 0 || !handshake.IsChild(os.Args[1:]) {
		return
	}
	hash, size, ok := ready.ParseSum(sum)
	if !ok {
		return // package packed says it
	}
	fd, ok := ready.Ready(ready.Want{Name: name, SHA256: hash, Size: size, Variable: variable})
	if !ok {
		return // it has to be unpacked first, by main
	}
	// It returns where it failed; main tries again, and tells why.
	_ = ready.Exec(fd, os.Args, syscall.Environ())
	syscall.Close(fd)
}
