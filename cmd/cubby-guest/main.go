//go:build linux

// Command cubby-guest is process 1 of a sandbox. The host starts it; it is of no
// use on its own.
package main

import (
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest"
)

func main() { os.Exit(guest.Main()) }
