//go:build linux

// Package channel carries connections between the host and the guest of a
// sandbox over one SOCK_SEQPACKET socket that the guest finds on descriptor 3.
//
// Every message is a type byte and at most 64 KiB of payload, so no message is
// ever half there. The messages of one session are a byte stream that carries
// HTTP/2; each connection is one stream of it, `POST /dial?port=N`. A host that
// takes over a guest (after a restore the guest's half of HTTP/2 is one that the
// new host never saw) opens a new session, which voids the old one; the guest
// acknowledges before it sends anything in the new one, so that what an old
// session still had in flight is never taken for the new one's.
//
// The request body of a stream is the bytes to the guest, its end the end of
// what the host writes. The response body is made of chunks, each a big-endian
// uint32 length and that many bytes; length 0 is the end of what the guest
// writes, after which the host may still write. A response that ends without it
// was cut: readers get ErrReset.
package channel

import (
	"errors"
	"net"
)

// ErrRefused is what Dial's error wraps when nothing listens on the port.
var ErrRefused = errors.New("connection refused inside the sandbox")

// ErrReset is what a read returns when the other side aborted the connection,
// or is gone, before it ended what it wrote.
var ErrReset = errors.New("connection reset by the sandbox channel")

const (
	maxPayload = 64 << 10       // of one message
	maxFrame   = maxPayload - 9 // of HTTP/2, from a guest: with its header it fills a message
	maxChunk   = maxFrame - 4   // of one chunk of a response body: with its length it fills a frame
	// maxUpload is of a frame to a guest. Go's HTTP/2 holds a buffer of that size
	// on the host for as long as a connection is there.
	maxUpload  = maxPayload/2 - 9
	maxHeader  = 16 << 10 // of a stream
	maxStreams = 4096     // connections open at a time
	pipeSize   = 64 << 10 // bytes buffered per direction of a connection

	// What HTTP/2 lets a peer send ahead of the reader of one connection, and of
	// all: as much as if nobody read any. A smaller sum would let some that are
	// not read hold all others up. Go documents a limit of 4 MiB for it that
	// Go 1.26 does not have; TestStalledStreamsDoNotHoldOthersUp would tell.
	streamWindow = 128 << 10
	connWindow   = maxStreams * streamWindow

	dialPath = "/dial"
)

type addr string

func (addr) Network() string  { return "cubby" }
func (a addr) String() string { return string(a) }

var _ net.Addr = addr("")
