// Package internal holds the sources of what an engine and the guest in a sandbox
// say to each other beyond the protocol's types: the channel, the generated
// services, and what the guest is told at its start. Package guestversion makes of
// them a name for the build.
package internal

import "embed"

// Contract is those sources; see the package internal of the library.
//
//go:embed envd/*.proto channel/doc.go channel/guest.go channel/host.go channel/link.go channel/pipe.go guest/settings/config.go
var Contract embed.FS
