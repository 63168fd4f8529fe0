//go:build linux

// Package guestbin provides the guest, the program that is process 1 in a sandbox: the
// one that is packed in this program when it was built with the tag cubby_guest (as make
// does), else the running program itself.
package guestbin
