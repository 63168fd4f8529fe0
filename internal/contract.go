// Package internal holds the sources of what a program and the Cubby that it starts
// say to each other: the command line and the greeting of the child, its errors, and
// the protocol's types. Package version makes of them a name for the build.
package internal

import "embed"

// Contract is those sources. They are embedded rather than hashed by a build step,
// so that every way of building (go build, go run, go test, make, from a clone, an
// archive or the module cache) agrees on them.
//
//go:embed fault/*.go handshake/handshake.go protocol/*.go
var Contract embed.FS
