// Package version holds the one version that every part of Cubby compares.
//
// The command, its child process and the guest inside a sandbox must be of the
// same build; a constant (not a link-time stamp) keeps `go build`, `go install`
// and `make` in agreement.
package version

// Version is Cubby's semantic version.
const Version = "0.1.0"
