//go:build linux

package channel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// lingerTime is how long a closed connection waits for the guest to end its
// side, so that the last bytes written arrive, before it is cut.
const lingerTime = time.Second

// stallTime is how long a guest may read nothing that the host sends before its
// session is given up, with whoever waits there. A guest that is there reads at
// once: only its kernel, or somebody who took it over, can keep it from that.
const stallTime = time.Minute

// Host is the host's end. Its methods may be called concurrently.
type Host struct {
	id      string // what its sessions' names begin with: see idSeparator
	l       *link
	tr      *http.Transport
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	opening chan struct{} // holds a value while a session is opened

	mu     sync.Mutex
	closed bool
	client *http.ClientConn // of the current session
}

// NewHost takes over f, the host's end of the socket, also when it fails. The
// guest need not be there yet: connections wait for it.
func NewHost(f *os.File) (*Host, error) { return newHost(f, stallTime) }

func newHost(f *os.File, stall time.Duration) (*Host, error) {
	f, err := pollable(f)
	if err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	h := &Host{id: rand.Text(), l: &link{f: f, stall: stall}, opening: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h.tr = &http.Transport{
		Protocols:          protocols,
		DisableCompression: true,
		// A guest's answers are a status and a few words.
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReadFrameSize:              maxFrame,
			WriteByteTimeout:              stall,
		},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return h.l.start("host", h.id+idSeparator+rand.Text())
		},
	}
	h.wg.Go(h.readLoop)
	return h, nil
}

// readLoop feeds the current session. It waits while HTTP/2 has not taken what
// came before, so a guest that floods fills only its own socket.
func (h *Host) readLoop() {
	buf := make([]byte, maxPayload+1)
	for {
		kind, payload, err := h.l.read(buf)
		if err != nil {
			h.l.end(ErrReset)
			return
		}
		switch kind {
		case msgSession:
			if s := h.l.cur.Load(); s != nil && s.id == string(payload) {
				s.acked = true
			}
		case msgData:
			// Before the acknowledgement these are an older session's.
			if s := h.l.cur.Load(); s != nil && s.acked {
				if s.guard.pass(payload) != nil {
					h.l.end(ErrReset)
					break
				}
				_, _ = s.rx.Write(payload)
			}
		case msgEnd:
			if s := h.l.cur.Load(); s != nil && s.acked {
				h.l.end(ErrReset)
			}
		}
	}
}

// Dial connects to a port inside the sandbox; ctx bounds the connecting, not
// the connection. The error wraps ErrRefused if nothing listens there, and
// net.ErrClosed after Close. The connection has CloseWrite, as a TCP one has.
func (h *Host) Dial(ctx context.Context, port int) (net.Conn, error) {
	client, err := h.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("channel: dial port %d: %w", port, err)
	}
	rctx, cancel := context.WithCancel(h.ctx)
	tx := newPipe(pipeSize)
	req, err := http.NewRequestWithContext(rctx, http.MethodPost, "http://guest"+dialPath+"?port="+strconv.Itoa(port), bodyPipe{tx})
	if err != nil {
		h.wg.Done()
		cancel()
		return nil, fmt.Errorf("channel: %w", err)
	}
	type answer struct {
		resp *http.Response
		err  error
	}
	answers := make(chan answer)
	gone := make(chan struct{})
	go func() {
		defer h.wg.Done()
		resp, err := client.RoundTrip(req)
		select {
		case answers <- answer{resp, err}:
		case <-gone:
			if err == nil {
				resp.Body.Close()
			}
		}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		close(gone)
		cancel()
		tx.closeRead(ErrReset)
		return nil, fmt.Errorf("channel: dial port %d: %w", port, ctx.Err())
	}
	if a.err != nil {
		cancel()
		tx.closeRead(ErrReset)
		if h.ctx.Err() != nil {
			a.err = net.ErrClosed
		}
		return nil, fmt.Errorf("channel: dial port %d: %w", port, a.err)
	}
	if a.resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(a.resp.Body, 512))
		a.resp.Body.Close()
		cancel()
		tx.closeRead(ErrReset)
		if a.resp.StatusCode == http.StatusBadGateway {
			return nil, fmt.Errorf("channel: dial port %d: %w", port, ErrRefused)
		}
		return nil, fmt.Errorf("channel: dial port %d: guest answered %d: %q", port, a.resp.StatusCode, reason)
	}
	c := &conn{rx: newPipe(pipeSize), tx: tx, local: "host", remote: addr("guest:" + strconv.Itoa(port))}
	c.closed = func() { time.AfterFunc(lingerTime, cancel) }
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		cancel()
		a.resp.Body.Close()
		return nil, fmt.Errorf("channel: dial port %d: %w", port, net.ErrClosed)
	}
	h.wg.Add(1)
	h.mu.Unlock()
	// A reader that reads nothing must not hold the end of it all up.
	stop := context.AfterFunc(rctx, func() { c.rx.closeWrite(ErrReset) })
	go func() {
		defer h.wg.Done()
		defer cancel()
		defer stop()
		unchunk(c, a.resp.Body)
	}()
	return c, nil
}

// session returns the session that is there, or opens one: one for all, while the
// transport's own pool would open several at once. It counts the round trip for
// which it is asked in h.wg.
func (h *Host) session(ctx context.Context) (*http.ClientConn, error) {
	select {
	case h.opening <- struct{}{}:
		defer func() { <-h.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h.mu.Lock()
	client, closed := h.client, h.closed
	if !closed {
		h.wg.Add(1)
	}
	h.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if client != nil && client.Err() == nil {
		return client, nil
	}
	client, err := h.tr.NewClientConn(h.ctx, "http", "guest:80")
	if err != nil {
		h.wg.Done()
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.wg.Done()
		_ = client.Close()
		return nil, net.ErrClosed
	}
	h.client = client
	return client, nil
}

// unchunk moves the chunks of body into c until they end. Between chunks it
// holds no buffer.
func unchunk(c *conn, body io.ReadCloser) {
	defer body.Close()
	ended := false
	for {
		var head [4]byte
		_, err := io.ReadFull(body, head[:])
		if ended && errors.Is(err, io.EOF) {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if err == nil && (ended || n > maxChunk) {
			err = errors.New("bad chunk")
		}
		if err == nil && n > 0 {
			buf := lend(largeBuffer)[:n]
			if _, err = io.ReadFull(body, buf); err == nil {
				// A reader that is gone is no reason to stop: what was
				// written may still be on its way, see lingerTime.
				_, _ = c.rx.Write(buf)
				recycle(buf)
				continue
			}
			recycle(buf)
		}
		if err != nil {
			c.rx.closeWrite(ErrReset)
			c.tx.closeRead(ErrReset)
			return
		}
		ended = true
		c.rx.closeWrite(nil)
	}
}

// Close ends all connections and waits until nothing of the channel runs.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	client := h.client
	h.mu.Unlock()
	h.cancel()
	err := h.l.f.Close()
	h.l.end(net.ErrClosed)
	if client != nil {
		_ = client.Close()
	}
	h.wg.Wait()
	return err
}

// bodyPipe is the reading end of a pipe as a request body.
type bodyPipe struct{ p *pipe }

func (b bodyPipe) Read(buf []byte) (int, error) { return b.p.Read(buf) }

func (b bodyPipe) Close() error {
	b.p.closeRead(ErrReset)
	return nil
}
