package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of a head: the lines of a request or an answer before its body.
const (
	maxLine   = 32 << 10  // bytes of a line
	maxHead   = 128 << 10 // bytes of all
	maxFields = 256
	maxMethod = 32
)

// Refused says that the client was answered with an error, and why. Nothing of its
// request has been passed on, or not its end.
type Refused struct {
	Status int // 400, 421, 431 or 502
	Reason string
}

func (e *Refused) Error() string { return fmt.Sprintf("refused with %d: %s", e.Status, e.Reason) }

func badRequest(reason string) error { return &Refused{http.StatusBadRequest, reason} }

func tooLarge(reason string) error {
	return &Refused{http.StatusRequestHeaderFieldsTooLarge, reason}
}

func wrongHost(reason string) error { return &Refused{http.StatusMisdirectedRequest, reason} }

// field is a line of a head. The name's case is kept.
type field struct{ name, value string }

func (f field) is(name string) bool { return strings.EqualFold(f.name, name) }

// lineReader reads the lines of a head.
type lineReader struct {
	r *bufio.Reader
	// strict: lines end with CR LF and are not folded. Servers' answers are read as
	// clients do, who accept more.
	strict bool
	left   int // bytes that the head may still have
}

var errLineTooLong = errors.New("a line or a head is too long")

// line returns the next line without its end. The error at the end of the input
// is io.EOF before the line's first byte and io.ErrUnexpectedEOF in it.
func (l *lineReader) line() (string, error) {
	var long []byte
	for {
		piece, err := l.r.ReadSlice('\n')
		if l.left -= len(piece); l.left < 0 || len(long)+len(piece) > maxLine {
			return "", errLineTooLong
		}
		if err == bufio.ErrBufferFull {
			long = append(long, piece...)
			continue
		}
		if err != nil {
			if err == io.EOF && len(long)+len(piece) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		line := string(append(long, piece[:len(piece)-1]...))
		trimmed := strings.TrimSuffix(line, "\r")
		if l.strict && len(trimmed) == len(line) {
			return "", badRequest("a line ends without CR")
		}
		return trimmed, nil
	}
}

// fields reads lines up to the empty one.
func (l *lineReader) fields() ([]field, error) {
	var fields []field
	for {
		line, err := l.line()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || line == "" {
			return fields, err
		}
		if line[0] == ' ' || line[0] == '\t' {
			if l.strict || len(fields) == 0 {
				return nil, badRequest("a header is folded")
			}
			last := &fields[len(fields)-1]
			folded := strings.Trim(line, " \t")
			if !isValue(folded) {
				return nil, badRequest("a header has a control character")
			}
			last.value = strings.Trim(last.value+" "+folded, " ")
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return nil, badRequest("a header has a malformed name")
		}
		value = strings.Trim(value, " \t")
		if !isValue(value) {
			return nil, badRequest("a header has a control character")
		}
		if fields = append(fields, field{name, value}); len(fields) > maxFields {
			return nil, errLineTooLong
		}
	}
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// tokens returns the elements of the lists that the fields of that name have, in
// lower case.
func tokens(fields []field, name string) []string {
	var all []string
	for _, f := range fields {
		if !f.is(name) {
			continue
		}
		for token := range strings.SplitSeq(f.value, ",") {
			if token = strings.Trim(token, " \t"); token != "" {
				all = append(all, strings.ToLower(token))
			}
		}
	}
	return all
}

// values returns what the fields of that name have.
func values(fields []field, name string) []string {
	var all []string
	for _, f := range fields {
		if f.is(name) {
			all = append(all, f.value)
		}
	}
	return all
}

// folded is a name as servers compare it that make variables of headers.
func folded(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// hopByHop are the fields that belong to a connection: each side gets its own. So
// are those by which a body's end is known, and what we do ourselves (Expect).
var hopByHop = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "proxy-authenticate": true,
	"proxy-authorization": true, "te": true, "transfer-encoding": true, "content-length": true,
	"upgrade": true, "http2-settings": true, "expect": true,
}

// endToEnd returns the fields that are passed on.
func endToEnd(fields []field) []field {
	named := map[string]bool{}
	for _, token := range tokens(fields, "Connection") {
		named[token] = true
	}
	var kept []field
	for _, f := range fields {
		if name := strings.ToLower(f.name); !hopByHop[name] && !named[name] {
			kept = append(kept, f)
		}
	}
	return kept
}

// notInTrailers are the fields by which messages are understood, or led.
var notInTrailers = map[string]bool{"host": true, "trailer": true, "authorization": true, "cookie": true, "set-cookie": true}

// trailers returns those that are passed on.
func trailers(fields []field, without map[string]bool) []field {
	var kept []field
	for _, f := range endToEnd(fields) {
		if name := folded(f.name); !notInTrailers[name] && !hopByHop[name] && !without[name] {
			kept = append(kept, f)
		}
	}
	return kept
}

// Lengths of bodies that are none.
const (
	lengthNone    = -1 // there is no body
	lengthChunked = -2
	lengthToEnd   = -3 // up to the end of the connection; answers only
)

// request is what was understood of a request's head.
type request struct {
	method  string
	target  string // in origin-form, or "*"
	host    string // the authority, as it is passed on
	old     bool   // HTTP/1.0
	fields  []field
	length  int64 // of the body, or one of the constants
	keep    bool  // the client wants to keep the connection
	expect  bool  // it waits for 100 (Continue)
	upgrade bool  // to WebSocket
}

// readRequest reads a request's head, of which every byte must be as it should be.
// The error is io.EOF if there is none, a *Refused for what must be answered, or
// that of the connection.
func readRequest(r *bufio.Reader, o *target) (*request, error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if !isTokenByte(first[0]) {
		return nil, badRequest("this is not HTTP/1")
	}
	lines := &lineReader{r: r, strict: true, left: maxHead}
	line, err := lines.line()
	if err == errLineTooLong {
		return nil, tooLarge("the request's line is too long")
	}
	if err != nil {
		return nil, err
	}
	q, err := requestLine(line)
	if err != nil {
		return nil, err
	}
	fields, err := lines.fields()
	if err == errLineTooLong {
		return nil, tooLarge("the headers are too large or too many")
	}
	if err != nil {
		return nil, err
	}
	if err := q.understand(fields, o); err != nil {
		return nil, err
	}
	return q, nil
}

// requestLine reads the method, the target and the version.
func requestLine(line string) (*request, error) {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !isToken(method) || len(method) > maxMethod || target == "" {
		return nil, badRequest("the request's line is malformed")
	}
	q := &request{method: method, target: target}
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		q.old = true
	case "HTTP/2.0":
		return nil, badRequest("HTTP/2 is not passed on; use HTTP/1.1")
	default:
		return nil, badRequest("the request's version is not HTTP/1.0 or HTTP/1.1")
	}
	switch strings.ToUpper(method) {
	case http.MethodConnect:
		return nil, badRequest("CONNECT is not passed on")
	case http.MethodTrace:
		return nil, badRequest("TRACE is not passed on") // it would show what was added
	case "PRI":
		return nil, badRequest("HTTP/2 is not passed on; use HTTP/1.1")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return nil, badRequest("the request's target has characters that it must not have")
		}
	}
	return q, nil
}

// understand judges the fields and keeps those that are passed on.
func (q *request) understand(fields []field, o *target) error {
	for _, f := range fields {
		if name := folded(f.name); name != strings.ToLower(f.name) &&
			(name == "host" || name == "content-length" || name == "transfer-encoding") {
			return badRequest("a header that servers may take for another")
		}
	}
	hosts := values(fields, "Host")
	switch {
	case len(hosts) == 0:
		return badRequest("no Host header")
	case len(hosts) > 1:
		return badRequest("more than one Host header")
	}
	var ok bool
	if q.host, ok = o.authority(hosts[0]); !ok {
		return wrongHost("the Host header is not the name that this connection was made for")
	}
	if err := q.originForm(o); err != nil {
		return err
	}
	if err := q.framing(fields); err != nil {
		return err
	}
	connection := tokens(fields, "Connection")
	for _, token := range connection {
		if !isToken(token) {
			return badRequest("a malformed Connection header")
		}
	}
	has := func(token string) bool {
		for _, t := range connection {
			if t == token {
				return true
			}
		}
		return false
	}
	q.keep = !has("close") && (!q.old || has("keep-alive"))
	if expect := values(fields, "Expect"); len(expect) > 0 && !q.old {
		if len(expect) > 1 || !strings.EqualFold(expect[0], "100-continue") {
			return badRequest("an unknown expectation")
		}
		q.expect = q.length != lengthNone && q.length != 0
	}
	// Only to WebSocket: another protocol could lead requests elsewhere, as HTTP/2
	// does. A server may go on as if it had not been asked.
	if upgrade := values(fields, "Upgrade"); !q.old && has("upgrade") && len(upgrade) == 1 &&
		strings.EqualFold(upgrade[0], "websocket") {
		if q.length != lengthNone && q.length != 0 {
			return badRequest("an upgrade with a body")
		}
		q.upgrade = true
	}
	trailers := false
	for _, token := range tokens(fields, "TE") {
		trailers = trailers || token == "trailers"
	}
	q.fields = nil
	for _, f := range endToEnd(fields) {
		name := strings.ToLower(f.name)
		if name == "host" || o.replaces[folded(f.name)] ||
			o.redact != nil && (name == "accept-encoding" || name == "sec-websocket-extensions") {
			continue
		}
		q.fields = append(q.fields, f)
	}
	if o.redact != nil {
		q.fields = append(q.fields, field{"Accept-Encoding", "identity"})
	}
	if trailers {
		q.fields = append(q.fields, field{"TE", "trailers"})
	}
	q.fields = append(q.fields, o.inject...)
	switch {
	case q.upgrade:
		q.fields = append(q.fields, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"})
	case !q.keep && trailers:
		q.fields = append(q.fields, field{"Connection", "close, TE"})
	case !q.keep:
		q.fields = append(q.fields, field{"Connection", "close"})
	case trailers:
		q.fields = append(q.fields, field{"Connection", "TE"})
	}
	return nil
}

// originForm makes the target one of the host alone.
func (q *request) originForm(o *target) error {
	if scheme, rest, ok := strings.Cut(q.target, "://"); ok && !strings.ContainsAny(scheme, "/?*") {
		if !strings.EqualFold(scheme, o.scheme) {
			return wrongHost("the request's target is one of another scheme")
		}
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		if host, ok := o.authority(rest[:end]); !ok || host != q.host {
			return wrongHost("the request's target is not the name that this connection was made for")
		}
		switch q.target = rest[end:]; {
		case q.target == "" && q.method == http.MethodOptions:
			q.target = "*"
		case !strings.HasPrefix(q.target, "/"):
			q.target = "/" + q.target
		}
	}
	if q.target[0] != '/' && !(q.target == "*" && q.method == http.MethodOptions) {
		return badRequest("the request's target is not a path")
	}
	// Some servers take bytes beyond ASCII for blanks.
	for i := range len(q.target) {
		if q.target[i] >= 0x80 {
			q.target = escape(q.target)
			break
		}
	}
	if _, err := url.ParseRequestURI(q.target); q.target != "*" && err != nil {
		return badRequest("the request's path has a malformed escape")
	}
	return nil
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] < 0x80 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// framing finds out where the body ends. There is one way to read it or none.
func (q *request) framing(fields []field) error {
	lengths, codings := values(fields, "Content-Length"), values(fields, "Transfer-Encoding")
	switch {
	case len(lengths) > 0 && len(codings) > 0:
		return badRequest("both Content-Length and Transfer-Encoding")
	case len(lengths) > 1 || len(codings) > 1:
		return badRequest("more than one Content-Length or Transfer-Encoding")
	case len(codings) == 1:
		if q.old || !strings.EqualFold(codings[0], "chunked") {
			return badRequest("a transfer coding that is not chunked")
		}
		q.length = lengthChunked
	case len(lengths) == 1:
		n, ok := parseLength(lengths[0])
		if !ok {
			return badRequest("a malformed Content-Length")
		}
		q.length = n
	default:
		q.length = lengthNone
	}
	return nil
}

func parseLength(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// write writes the head anew.
func (q *request) write(w *bufio.Writer) {
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: %s\r\n", q.method, q.target, q.host)
	writeFields(w, q.fields)
	writeFraming(w, q.length)
	w.WriteString("\r\n")
}

func writeFields(w *bufio.Writer, fields []field) {
	for _, f := range fields {
		w.WriteString(f.name)
		w.WriteString(": ")
		w.WriteString(f.value)
		w.WriteString("\r\n")
	}
}

func writeFraming(w *bufio.Writer, length int64) {
	switch {
	case length >= 0:
		fmt.Fprintf(w, "Content-Length: %d\r\n", length)
	case length == lengthChunked:
		w.WriteString("Transfer-Encoding: chunked\r\n")
	}
}

// target is the one host that requests go to, and what they and their answers
// have to be changed in.
type target struct {
	host     string // in lower case; an address of IPv6 in brackets
	address  netip.Addr
	port     uint16
	scheme   string
	inject   []field
	replaces map[string]bool // names of inject, folded
	redact   *redaction
}

// authority says whether s means the target, and returns it as it is passed on:
// with the port if s has it.
func (o *target) authority(s string) (string, bool) {
	host, port := s, ""
	if at := strings.LastIndexByte(s, ':'); at >= 0 && at > strings.LastIndexByte(s, ']') {
		host, port = s[:at], s[at:]
		if port != ":"+strconv.Itoa(int(o.port)) {
			return "", false
		}
	}
	if o.address.Is6() {
		inside, ok := strings.CutPrefix(host, "[")
		if inside, ok = strings.CutSuffix(inside, "]"); !ok || len(inside)+2 != len(host) {
			return "", false
		}
		if a, err := netip.ParseAddr(inside); err != nil || a != o.address {
			return "", false
		}
		return o.host + port, true
	}
	for i := range len(host) {
		if host[i] >= 0x80 { // letters that fold to those of ASCII
			return "", false
		}
	}
	if !o.address.IsValid() {
		host = strings.TrimSuffix(host, ".")
	}
	if !strings.EqualFold(host, o.host) {
		return "", false
	}
	return o.host + port, true
}
