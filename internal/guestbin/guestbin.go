// Package guestbin finds the guest binary: embedded and unpacked once when built
// with the tag cubby_guest (as make does), else the running program itself.
package guestbin

// Name is the guest's argv[0] inside a sandbox, by which a binary that is its
// own guest knows what it is.
const Name = "cubby-guest"
