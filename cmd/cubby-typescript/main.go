// Command cubby-typescript makes JavaScript of TypeScript. The guest of a sandbox starts
// it when TypeScript is to run; it is of no use on its own.
package main

import (
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/typescript/transform"
)

func main() { os.Exit(transform.Main()) }
