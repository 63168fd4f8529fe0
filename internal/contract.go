// Package internal holds the sources of what Cubby's processes say to each other:
// the command line and the greeting of the child, the protocol's types, the
// channel into a sandbox and what its guest is told at its start. Package version
// makes of them a name for the build.
package internal

import "embed"

// Contract is those sources. They are embedded rather than hashed by a build step,
// so that every way of building (go build, go run, go test, make, from a clone, an
// archive or the module cache) agrees on them.
//
//go:embed handshake/handshake.go protocol/*.go protocol/envd/*.proto
//go:embed channel/doc.go channel/guest.go channel/host.go channel/link.go channel/pipe.go
//go:embed guest/config.go
var Contract embed.FS
