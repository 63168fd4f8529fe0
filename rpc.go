package cubby

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// envd's services are spoken by hand in the JSON form of the Connect protocol: a
// unary call is a POST of JSON; a stream is answered in envelopes, each a byte of
// flags, four of length (big-endian) and a JSON message. The last one has the flag
// flagEnd and says how the call ended.

const (
	envelopeHead = 5       // bytes
	maxEnvelope  = 4 << 20 // bytes; the guest's own have at most 44 KiB

	flagCompressed = 0x01 // never asked for
	flagEnd        = 0x02

	typeConnectJSON = "application/connect+json"

	// keepalive is how often a stream that says nothing is asked to say so.
	keepalive = 50 * time.Second
	// silence is how long a stream may say nothing at all before the client asks
	// what became of the sandbox. Servers that take no wish send a keepalive
	// every 90 seconds.
	silence = 4 * time.Minute
	// maxTimeout is the longest that the protocol has: ten digits.
	maxTimeout = 9_999_999_999 * time.Millisecond
)

var errCutCall = errors.New("the stream ended before the call did")

// envelopes reads a stream's envelopes. The sandbox writes them, so they are
// hostile.
type envelopes struct {
	in   io.Reader
	head [envelopeHead]byte
	buf  []byte // of the message, used again
}

// next returns a message, valid until the next call, and whether it is the last.
// Its errors: errCutCall or a read error when the other side went away, an *Error
// for a malformed stream.
func (e *envelopes) next() (message []byte, last bool, err error) {
	if _, err := io.ReadFull(e.in, e.head[:]); err != nil {
		return nil, false, cutCall(err)
	}
	flags, size := e.head[0], binary.BigEndian.Uint32(e.head[1:])
	switch {
	case flags&^(flagEnd) != 0:
		return nil, false, malformed(fmt.Errorf("envelope with flags %#x", flags))
	case size > maxEnvelope:
		return nil, false, malformed(fmt.Errorf("envelope of %d bytes", size))
	}
	if e.buf, err = readExactly(e.in, e.buf[:0], int(size)); err != nil {
		return nil, false, cutCall(err)
	}
	return e.buf, flags&flagEnd != 0, nil
}

// readExactly appends n bytes of r to b, and takes memory only as they come: the
// length is a claim of who may never send as much.
func readExactly(r io.Reader, b []byte, n int) ([]byte, error) {
	const step = 64 << 10
	for n > 0 {
		have, m := len(b), min(n, step)
		if cap(b)-have < m {
			grown := make([]byte, have, max(2*cap(b), have+m))
			copy(grown, b)
			b = grown
		}
		b = b[:have+m]
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			return b[:have], err
		}
		n -= m
	}
	return b, nil
}

func cutCall(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutCall
	}
	return err
}

// envelope wraps a message to be sent.
func envelope(message []byte) []byte {
	b := make([]byte, envelopeHead, envelopeHead+len(message))
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// endOfCall is the last message of a stream.
type endOfCall struct {
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// parseEnd returns the error that ended a call, nil if none did.
func parseEnd(message []byte, exhausted Code) error {
	var end endOfCall
	if err := json.Unmarshal(message, &end); err != nil {
		return malformed(err)
	}
	if end.Error == nil {
		return nil
	}
	code, ok := codeFromConnect(end.Error.Code)
	if !ok {
		code = CodeInternal
	}
	if end.Error.Code == connectExhausted {
		code = exhausted
	}
	text := cut(end.Error.Message, maxMessage)
	if text == "" {
		text = "the call ended with " + code.String()
	}
	return &Error{Code: code, Err: errors.New(text)}
}

// connectExhausted is Connect's word for a lack of anything: of room in a file
// system, and of room for one more command or watch.
const connectExhausted = "resource_exhausted"

// rpc is who calls envd: a sandbox, and a user in it ("" is the default one).
type rpc struct {
	s    *Sandbox
	user string
}

// request makes a request to envd.
func (c rpc) request(ctx context.Context, procedure string, in any) (*http.Request, error) {
	req, err := c.s.request(ctx, http.MethodPost, protocol.EnvdPort, procedure, nil, in)
	if err != nil {
		return nil, err
	}
	c.sign(req)
	req.Header.Set("Connect-Protocol-Version", "1")
	return req, nil
}

// sign names the user, as E2B's clients do: basic authorisation without a
// password.
func (c rpc) sign(req *http.Request) {
	if c.user != "" {
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.user+":")))
	}
}

// call is one unary call.
func (c rpc) call(ctx context.Context, procedure string, in, out any, header ...string) error {
	req, err := c.request(ctx, procedure, in)
	if err != nil {
		return err
	}
	setPairs(req.Header, header)
	return c.s.client.exchange(req, out)
}

// setPairs sets headers that come in pairs of name and value.
func setPairs(h http.Header, pairs []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
}

// stream is an answer that goes on. One goroutine reads it.
type stream struct {
	s         *Sandbox
	ctx       context.Context // of the request
	cancel    context.CancelCauseFunc
	body      io.ReadCloser
	in        envelopes
	exhausted Code          // what Connect's resource_exhausted means here
	quiet     time.Duration // how long it may say nothing
	watchdog  *time.Timer
}

// open begins a streaming call, which ends with ctx, with close, or by itself.
// exhausted is what Connect's resource_exhausted means for it.
func (c rpc) open(ctx context.Context, procedure string, in any, exhausted Code, header ...string) (*stream, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return nil, &Error{Code: CodeInvalidArgument, Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := c.request(ctx, procedure, bytes.NewReader(envelope(b)))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	req.Header.Set("Content-Type", typeConnectJSON)
	req.Header.Set(protocol.HeaderKeepalive, strconv.Itoa(int(keepalive/time.Second)))
	setPairs(req.Header, header)
	resp, err := c.s.client.send(req)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	st := &stream{
		s: c.s, ctx: ctx, cancel: cancel, body: resp.Body, in: envelopes{in: bufio.NewReaderSize(resp.Body, firstBuffer)},
		exhausted: exhausted, quiet: c.s.client.quiet,
	}
	st.watchdog = time.AfterFunc(st.quiet, st.ask)
	if t := resp.Header.Get("Content-Type"); !strings.HasPrefix(t, typeConnectJSON) {
		st.close()
		return nil, &Error{Code: CodeInternal, Err: fmt.Errorf("the sandbox answered %q, not a stream", cut(t, 64)),
			Hint: "is this the address of an E2B-compatible server?"}
	}
	return st, nil
}

// receive decodes the next message into out. io.EOF is the end of a call without
// an error. Its errors are *Error.
func (st *stream) receive(out any) error {
	message, last, err := st.in.next()
	st.watchdog.Reset(st.quiet)
	switch {
	case err != nil:
		return st.broken(err)
	case last:
		if err := parseEnd(message, st.exhausted); err != nil {
			if c := CodeOf(err); c == CodeUnavailable || c == CodeSandboxGone {
				return st.broken(err) // a sandbox that is ending says so, if it still can
			}
			return err
		}
		return io.EOF
	}
	if err := json.Unmarshal(message, out); err != nil {
		return malformed(err)
	}
	return nil
}

// ask ends a stream that has long said nothing if its sandbox is gone or paused:
// a connection can die without a sign.
func (st *stream) ask() {
	ctx, cancel := context.WithTimeout(st.ctx, diagnoseTimeout)
	defer cancel()
	switch info, err := st.s.Info(ctx); {
	case CodeOf(err) == CodeNotFound, err == nil && info.State == StatePaused:
		st.cancel(errCutCall)
	default:
		if st.ctx.Err() == nil {
			st.watchdog.Reset(st.quiet)
		}
	}
}

// broken explains why a stream broke off.
func (st *stream) broken(err error) error {
	if cause := context.Cause(st.ctx); cause != nil && !errors.Is(cause, errCutCall) {
		return fail("", CodeCanceled, cause)
	} else if cause != nil {
		err = cause
	}
	return fail("", CodeSandboxGone, st.s.diagnose(st.ctx, err))
}

// finish ends a stream of which all that matters was read. What little is left
// is read if it is there, so that the connection can serve again.
func (st *stream) finish() {
	stop := time.AfterFunc(time.Second, func() { st.cancel(nil) })
	defer stop.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(st.body, 64<<10))
	st.close()
}

func (st *stream) close() {
	st.cancel(nil) // first: ask sets the watchdog again only before that
	st.watchdog.Stop()
	_ = st.body.Close()
}
