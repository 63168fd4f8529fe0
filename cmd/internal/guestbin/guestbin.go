//go:build linux

// Package guestbin provides the programs that Cubby puts into a sandbox: the guest, which
// is process 1 there, and what makes JavaScript of TypeScript for it. They are packed in
// this program when it was built with the tag cubby_packed (as make does), else they are
// the running program itself, which calls Dispatch.
package guestbin
