//go:build linux

package gatewayproc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// What the server's process and its gateway say to each other.
const (
	opConfig = "config" // server: what holds for all sandboxes
	opAttach = "attach" // server: a sandbox with its card and its rules
	opUpdate = "update" // server: other rules for a sandbox; is answered
	opDetach = "detach" // server: a sandbox that is gone
	opFlush  = "flush"  // server: is answered after all flows before it
	opReady  = "ready"  // gateway: it is confined, and serves
	opDone   = "done"   // gateway: the answer to the message of the same Seq
	opFlow   = "flow"   // gateway: what was decided of a flow, or how it ended
	opLog    = "log"    // gateway: a line of its log, as slog's JSON
)

type message struct {
	Op       string           `json:"op"`
	Seq      uint64           `json:"seq,omitempty"`
	Sandbox  string           `json:"sandbox,omitempty"`
	Rules    *egress.Rules    `json:"rules,omitempty"`
	Operator *egress.Operator `json:"operator,omitempty"`
	// Authority is the certificate authority with its key, Roots are the
	// certificates by which servers outside are verified, both as PEM.
	Authority []byte          `json:"authority,omitempty"`
	Roots     []byte          `json:"roots,omitempty"`
	Flow      *egress.Flow    `json:"flow,omitempty"`
	Log       json.RawMessage `json:"log,omitempty"`
	Error     string          `json:"error,omitempty"`
}

const (
	// maxMessage bounds a message, in bytes: ten thousand rules and the
	// certificates of every authority take less than 2 MB.
	maxMessage = 16 << 20
	// maxTold bounds a message from the gateway, in bytes: a flow, a line of its log.
	maxTold = 32 << 10
	// sendTimeout is how long the other side may leave a message unread before it
	// counts as dead.
	sendTimeout = 10 * time.Second
)

// wire sends and receives messages. One goroutine at a time may receive.
type wire struct {
	conn *net.UnixConn

	sending sync.Mutex

	limit  int // of a message that is received, in bytes
	unread []byte
	cards  bool       // descriptors may come; those that may not are closed
	files  []*os.File // received, in their order, and not yet taken
}

// serversWire is the server's end, and gatewaysWire the gateway's. The server believes
// nothing that it is told: it takes short messages, and no descriptors.
func serversWire(f *os.File) (*wire, error) { return newWire(f, maxTold, false) }

func gatewaysWire(f *os.File) (*wire, error) { return newWire(f, maxMessage, true) }

func newWire(f *os.File, limit int, cards bool) (*wire, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("the gateway's socket is none of Unix")
	}
	return &wire{conn: u, limit: limit, cards: cards}, nil
}

// send writes a message, and with it the file if that is not nil.
func (w *wire) send(m *message, file *os.File) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("a message of %d bytes to or from the gateway: at most %d are possible", len(body), maxMessage)
	}
	var rights []byte
	if file != nil {
		raw, err := file.SyscallConn()
		if err != nil {
			return err
		}
		// The descriptor must not be closed until it was sent: so all is done here.
		sent := errors.New("the file is closed")
		if err := raw.Control(func(fd uintptr) {
			rights = unix.UnixRights(int(fd))
			sent = w.write(body, rights)
		}); err != nil {
			return err
		}
		return sent
	}
	return w.write(body, nil)
}

func (w *wire) write(body, rights []byte) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	if err := w.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 4), uint32(len(body)))
	n, _, err := w.conn.WriteMsgUnix(head, rights, nil)
	if err != nil {
		return err
	}
	_, err = w.conn.Write(append(head[n:], body...))
	return err
}

// receive reads a message. The file of one with opAttach is the caller's.
func (w *wire) receive() (*message, *os.File, error) {
	head, err := w.read(4)
	if err != nil {
		return nil, nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > uint32(w.limit) {
		return nil, nil, fmt.Errorf("a message of %d bytes", n)
	}
	body, err := w.read(int(n))
	if err != nil {
		return nil, nil, err
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, nil, err
	}
	if m.Op != opAttach {
		return &m, nil, nil
	}
	if len(w.files) == 0 {
		return nil, nil, errors.New("a sandbox without a card")
	}
	f := w.files[0]
	w.files = w.files[1:]
	return &m, f, nil
}

// read returns the next n bytes, which are the caller's.
func (w *wire) read(n int) ([]byte, error) {
	if len(w.unread) >= n {
		data := w.unread[:n:n]
		w.unread = w.unread[n:]
		return data, nil
	}
	buf := make([]byte, 64<<10)
	rights := make([]byte, unix.CmsgSpace(4*maxRights))
	for len(w.unread) < n {
		got, gotRights, _, _, err := w.conn.ReadMsgUnix(buf, rights)
		if err == nil && got == 0 {
			err = io.EOF
		}
		w.take(rights[:gotRights])
		if err != nil {
			return nil, err
		}
		w.unread = append(w.unread, buf[:got]...)
	}
	data := w.unread[:n:n]
	w.unread = w.unread[n:]
	return data, nil
}

// maxRights is how many descriptors can come with a message (the kernel's SCM_MAX_FD).
const maxRights = 253

func (w *wire) take(rights []byte) {
	all, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return // the message that wants a file will miss it
	}
	for _, m := range all {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if !w.cards {
				unix.Close(fd)
				continue
			}
			unix.CloseOnExec(fd)
			w.files = append(w.files, os.NewFile(uintptr(fd), "network card"))
		}
	}
}

func (w *wire) close() error {
	for _, f := range w.files {
		f.Close()
	}
	return w.conn.Close()
}
