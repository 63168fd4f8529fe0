//go:build linux && cubby_packed

package enginebin

import (
	"embed"
	"iter"
	"os"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

// What package packed's command pack has made of the engine's program.
var (
	//go:embed cubby-engine.zst
	compressed []byte
	//go:embed cubby-engine.sum
	sum string
	//go:embed *.modules
	modules embed.FS
)

const (
	name     = "cubby-engine"
	variable = "CUBBY_ENGINE" // may name the program's file
)

// Compressed is the program as package packed unpacks it, and Sum its hash and length.
func Compressed() []byte { return compressed }
func Sum() string        { return sum }

// Modules is what the program is built from, as `go version -m` has it.
func Modules() string { return modulesOf(name + suffix) }

// AllModules yields the names of the program and of those that are packed in it, and what
// each is built from.
func AllModules() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		entries, err := modules.ReadDir(".")
		if err != nil {
			panic("enginebin: " + err.Error()) // it is part of this program
		}
		for _, entry := range entries {
			if !yield(strings.TrimSuffix(entry.Name(), suffix), modulesOf(entry.Name())) {
				return
			}
		}
	}
}

const suffix = ".modules"

func modulesOf(file string) string {
	text, err := modules.ReadFile(file)
	if err != nil {
		panic("enginebin: " + err.Error()) // it is part of this program
	}
	return string(text)
}

// Name is the program's, and Variable the one of the environment that may name its file.
func Name() string     { return name }
func Variable() string { return variable }

// A program that embeds Cubby starts this one to be its engine. Go initialises packages
// whose dependencies are ready in the order of their import paths: this one is done
// before the command line's libraries begin.
func init() {
	if len(os.Args) == 0 || !isChild(os.Args[1:]) {
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
