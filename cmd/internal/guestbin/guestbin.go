// Package guestbin finds the guest binary: embedded and unpacked once when built
// with the tag cubby_guest (as make does), else the running program itself.
package guestbin
