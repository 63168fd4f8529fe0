package web

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// answer is what was understood of an answer's head.
type answer struct {
	status  int
	reason  string
	fields  []field
	length  int64
	keep    bool // the server keeps the connection
	upgrade bool // to WebSocket
}

// badAnswer says that the server's answer cannot be passed on.
type badAnswer struct{ reason string }

func (e *badAnswer) Error() string { return "the host's answer: " + e.reason }

// readAnswer reads the head of an answer to a request of the method. It reads what
// clients read: lines may end with LF alone and be folded.
func readAnswer(r *bufio.Reader, method string) (*answer, error) {
	lines := &lineReader{r: r, left: maxHead}
	a, err := answerHead(lines)
	if err == errLineTooLong {
		return nil, &badAnswer{"its head is too large"}
	}
	if refused, ok := err.(*Refused); ok {
		return nil, &badAnswer{refused.Reason}
	}
	if err != nil {
		return nil, err
	}
	if err := a.framing(method); err != nil {
		return nil, err
	}
	a.fields = endToEnd(a.fields)
	return a, nil
}

func answerHead(lines *lineReader) (*answer, error) {
	line, err := lines.line()
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	status, ok := parseLength(code)
	if version != "HTTP/1.1" && version != "HTTP/1.0" || !ok || len(code) != 3 || status < 100 || !isValue(reason) {
		return nil, &badAnswer{"it does not begin with HTTP/1.1 and a status"}
	}
	a := &answer{status: int(status), reason: reason}
	if a.fields, err = lines.fields(); err != nil {
		return nil, err
	}
	a.keep = version == "HTTP/1.1"
	for _, token := range tokens(a.fields, "Connection") {
		switch token {
		case "close":
			a.keep = false
			return a, nil
		case "keep-alive":
			a.keep = true
		}
	}
	return a, nil
}

// framing finds out where the body ends (RFC 9112, 6.3).
func (a *answer) framing(method string) error {
	a.length = lengthToEnd
	lengths := tokens(a.fields, "Content-Length")
	for _, s := range lengths {
		n, ok := parseLength(s)
		if !ok || s != lengths[0] {
			return &badAnswer{"a malformed Content-Length"}
		}
		a.length = n
	}
	if codings := tokens(a.fields, "Transfer-Encoding"); len(codings) == 1 && codings[0] == "chunked" {
		a.length = lengthChunked
	} else if len(codings) > 1 || len(codings) == 1 && codings[0] != "identity" {
		return &badAnswer{"a transfer coding that is not chunked"}
	}
	if upgrade := values(a.fields, "Upgrade"); a.status == http.StatusSwitchingProtocols {
		a.upgrade = len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket")
	}
	if a.status < 200 || a.status == http.StatusNoContent {
		a.length = lengthNone
	} else if (method == http.MethodHead || a.status == http.StatusNotModified) && a.length < 0 {
		a.length = lengthNone
	}
	return nil
}

// hasBody says whether a body follows the head.
func (a *answer) hasBody(method string) bool {
	return a.length != lengthNone && method != http.MethodHead && a.status != http.StatusNotModified
}

// write writes the head anew. The length is written if it is one; connection is
// the value of the header of that name, if it needs one.
func (a *answer) write(w *bufio.Writer, hide *redaction, length int64, connection string) {
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\n", a.status, hide.text(a.reason))
	writeFields(w, hidden(hide, a.fields))
	writeFraming(w, length)
	if connection != "" {
		fmt.Fprintf(w, "Connection: %s\r\n", connection)
	}
	if a.upgrade {
		w.WriteString("Upgrade: websocket\r\n")
	}
	w.WriteString("\r\n")
}

func hidden(hide *redaction, fields []field) []field {
	if hide == nil {
		return fields
	}
	shown := make([]field, len(fields))
	for i, f := range fields {
		shown[i] = field{hide.text(f.name), hide.text(f.value)}
	}
	return shown
}

// exchange is a request that was passed on, and what has become of its answer.
type exchange struct {
	*request
	done chan struct{} // closed when the answer has been passed on, or cannot be

	// What follows is written before done is closed.
	began    bool  // the client has something of the answer
	again    bool  // both connections can be used for another request
	upgraded bool  // the answer was 101
	err      error // why there is no answer, or not all of it
}

// answers reads what the server sends and passes it to the client, until one of
// the connections cannot be used any more. It owns what is written to the client
// while an exchange is under way.
func (f *forwarding) answers() {
	defer close(f.ended)
	defer f.hangUp()
	for {
		_, err := f.serverIn.Peek(1)
		var x *exchange
		select {
		case x = <-f.asked:
		default:
			return // the server has closed the connection, or speaks unasked
		}
		if err != nil {
			x.err = fmt.Errorf("the host has sent no answer: %w", err)
			close(x.done)
			return
		}
		if !f.answer(x) {
			return
		}
	}
}

// answer passes the answer to x on, and says whether another one can follow.
func (f *forwarding) answer(x *exchange) bool {
	w := buffers.writer(f.client)
	defer buffers.putWriter(w)
	// What was passed on must not wait while we wait for the server.
	f.server.before = w.Flush
	defer func() { f.server.before = nil }()
	var a *answer
	for {
		if a, x.err = readAnswer(f.serverIn, x.method); x.err != nil {
			close(x.done)
			return false
		}
		if a.status == http.StatusSwitchingProtocols {
			if a.upgrade && x.upgrade {
				return f.upgraded(x, a, w)
			}
			x.err = &badAnswer{"it switches to a protocol that was not asked for"}
			close(x.done)
			return false
		}
		if a.status >= 200 {
			break
		}
		// We have answered the client's Expect ourselves.
		if a.status != http.StatusContinue && !x.old {
			x.began = true
			a.write(w, f.target.redact, lengthNone, "")
		}
	}
	defer close(x.done)
	x.began = true
	length, body := a.length, a.hasBody(x.method)
	if length == lengthChunked && x.old {
		length = lengthToEnd
	}
	keep := x.keep && a.keep && (length != lengthToEnd || !body)
	connection := ""
	switch {
	case !keep:
		connection = "close"
	case x.old:
		connection = "keep-alive"
	}
	a.write(w, f.target.redact, length, connection)
	if body {
		if x.err = f.answerBody(a, sink{w, length == lengthChunked}); x.err != nil {
			return false
		}
	}
	if err := w.Flush(); err != nil {
		x.err = fmt.Errorf("to the client: %w", err)
		return false
	}
	// Nothing else was asked: more would be taken for the answer to what is asked next.
	x.again = keep && f.serverIn.Buffered() == 0
	return x.again
}

func (f *forwarding) answerBody(a *answer, to sink) error {
	var body io.Reader = f.serverIn // lengthToEnd
	var chunks *chunked
	switch {
	case a.length >= 0:
		body = &sized{f.serverIn, a.length}
	case a.length == lengthChunked:
		chunks = &chunked{r: f.serverIn}
		body = chunks
	}
	readErr, writeErr := pass(to, body, f.target.redact.stream(), f.server)
	// What was read is shown, also if the rest is missing.
	if err := to.w.Flush(); writeErr == nil {
		writeErr = err
	}
	switch {
	case writeErr != nil:
		return fmt.Errorf("to the client: %w", writeErr)
	case readErr != nil:
		return fmt.Errorf("the host's answer is not complete: %w", readErr)
	case to.chunked:
		to.w.WriteString("0\r\n")
		writeFields(to.w, hidden(f.target.redact, trailers(chunks.fields, nil)))
		to.w.WriteString("\r\n")
	}
	return nil
}

// upgraded passes bytes on after 101, the server's here and the client's in run.
// Each direction ends alone.
func (f *forwarding) upgraded(x *exchange, a *answer, w *bufio.Writer) bool {
	x.began, x.upgraded = true, true
	a.write(w, f.target.redact, lengthNone, "Upgrade")
	if x.err = w.Flush(); x.err != nil {
		x.upgraded = false
	}
	close(x.done)
	if x.err != nil {
		return false
	}
	readErr, writeErr := pass(sink{w: w}, f.serverIn, f.target.redact.stream(), f.server)
	if err := w.Flush(); readErr != nil || writeErr != nil || err != nil {
		return false
	}
	if closeWrite(f.client.Conn) == nil {
		<-f.clientEnded
	}
	return false
}
