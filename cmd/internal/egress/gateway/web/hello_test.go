package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// piecewise is a connection that gives its bytes in pieces of at most size.
type piecewise struct {
	net.Conn // nil: only what ReadHello uses is there
	data     []byte
	size     int
	end      error
}

func (c *piecewise) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, c.end
	}
	n := copy(p[:min(len(p), c.size)], c.data)
	c.data = c.data[n:]
	return n, nil
}

func (c *piecewise) SetReadDeadline(time.Time) error { return nil }

func readAll(data []byte, size, max int) (Hello, []byte, error) {
	hello, r, err := ReadHello(context.Background(), &piecewise{data: bytes.Clone(data), size: size, end: io.EOF}, max)
	replayed, _ := io.ReadAll(r)
	return hello, replayed, err
}

type extension struct {
	kind uint16
	data []byte
}

func serverName(names ...string) extension {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, name := range names {
			b.AddUint8(nameTypeHost)
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(name)) })
		}
	})
	return extension{extServerName, b.BytesOrPanic()}
}

func alpn(protocols ...string) extension {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, protocol := range protocols {
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(protocol)) })
		}
	})
	return extension{extALPN, b.BytesOrPanic()}
}

// message is a client hello with extensions; without any there is no list of them.
func message(extensions ...extension) []byte {
	var b cryptobyte.Builder
	b.AddUint8(messageHello)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(0x0303)
		b.AddBytes(make([]byte, 32))
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(make([]byte, 32)) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(0x0a0a); b.AddUint16(0x1301); b.AddUint16(0xc02b) })
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint8(0) })
		if extensions == nil {
			return
		}
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, e := range extensions {
				b.AddUint16(e.kind)
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(e.data) })
			}
		})
	})
	return b.BytesOrPanic()
}

// records puts data into records of at most size bytes.
func records(data []byte, size int) []byte {
	var out []byte
	for len(data) > 0 {
		n := min(size, len(data))
		out = append(out, recordHandshake, 3, 1, byte(n>>8), byte(n))
		out = append(out, data[:n]...)
		data = data[n:]
	}
	return out
}

var grease = extension{0x2a2a, nil}

func TestReadHello(t *testing.T) {
	name := serverName("Api.Example.com")
	tests := map[string]struct {
		message []byte
		want    Hello
	}{
		"a name":              {message(grease, name, alpn("h2", "http/1.1")), Hello{"Api.Example.com", []string{"h2", "http/1.1"}, false}},
		"no name":             {message(alpn("h2")), Hello{ALPN: []string{"h2"}}},
		"no extensions":       {message(), Hello{}},
		"an empty list":       {message([]extension{}...), Hello{}},
		"ECH":                 {message(extension{extECH, []byte{0, 0, 1, 0, 1, 7, 0, 0, 0, 0}}, name), Hello{"Api.Example.com", nil, true}},
		"ESNI":                {message(name, extension{extESNI, []byte("x")}), Hello{"Api.Example.com", nil, true}},
		"keys at the end":     {message(name, extension{extPSK, []byte{1}}), Hello{"Api.Example.com", nil, false}},
		"as long as can be":   {message(serverName(strings.Repeat("a", 255))), Hello{strings.Repeat("a", 255), nil, false}},
		"padding of a record": {message(name, extension{21, make([]byte, 20000)}), Hello{"Api.Example.com", nil, false}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			for _, fragment := range []int{1, 3, 4, 5, 100, maxRecord} {
				if fragment < 100 && len(test.message) > 1000 {
					continue
				}
				for _, piece := range []int{1, 7, 1 << 20} {
					data := append(records(test.message, fragment), "\x14\x03\x03 what follows"...)
					got, replayed, err := readAll(data, piece, 1<<17)
					if err != nil || !reflect.DeepEqual(got, test.want) {
						t.Fatalf("records of %d, pieces of %d: %+v, %v", fragment, piece, got, err)
					}
					if !bytes.Equal(replayed, data) {
						t.Fatalf("records of %d, pieces of %d: replayed %d of %d bytes", fragment, piece, len(replayed), len(data))
					}
				}
			}
		})
	}
}

func TestReadHelloRefuses(t *testing.T) {
	name := serverName("example.com")
	whole := records(message(name), maxRecord)
	change := func(at int, to byte) []byte {
		data := bytes.Clone(whole)
		data[at] = to
		return data
	}
	no, bad := "no", "bad"
	tests := map[string]struct {
		data []byte
		want string // no: ErrNoHello; bad: HelloError; otherwise the error's text
	}{
		"nothing":                      {nil, "EOF"},
		"one byte":                     {whole[:1], "unexpected EOF"},
		"half":                         {whole[:len(whole)/2], "unexpected EOF"},
		"all but one byte":             {whole[:len(whole)-1], "unexpected EOF"},
		"SSLv2":                        {[]byte{0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 16}, no},
		"HTTP":                         {[]byte("GET / HTTP/1.1\r\n"), no},
		"SSH":                          {[]byte("SSH-2.0-x"), no},
		"an alert":                     {[]byte{21, 3, 1, 0, 2, 1, 0}, no},
		"version 2":                    {change(1, 2), no},
		"a server's hello":             {change(5, 2), no},
		"a handshake of TLS 1.5":       {change(2, 5), bad},
		"an empty record":              {append([]byte{22, 3, 1, 0, 0}, whole...), bad},
		"a giant record":               {[]byte{22, 3, 1, 0x40, 1, 1}, bad},
		"interrupted by an alert":      {append(records(message(name), 30)[:35], 21, 3, 1, 0, 2, 1, 0), bad},
		"other versions in between":    {append(records(message(name), 30)[:35], 22, 2, 1, 0, 2, 1, 0), bad},
		"a giant message":              {[]byte{22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff}, bad},
		"two messages in a record":     {records(append(message(name), message(name)...), maxRecord), bad},
		"version 4 in the message":     {change(10, 4), bad},
		"two server_name extensions":   {records(message(name, serverName("other.com")), maxRecord), bad},
		"the same extension twice":     {records(message(name, name), maxRecord), bad},
		"GREASE twice":                 {records(message(name, grease, grease), maxRecord), bad},
		"two names":                    {records(message(serverName("example.com", "other.com")), maxRecord), bad},
		"no name in the list":          {records(message(serverName()), maxRecord), bad},
		"an empty extension":           {records(message(extension{extServerName, nil}), maxRecord), bad},
		"an empty name":                {records(message(serverName("")), maxRecord), bad},
		"a name of 256 bytes":          {records(message(serverName(strings.Repeat("a", 256))), maxRecord), bad},
		"NUL in the name":              {records(message(serverName("evil.com\x00.example.com")), maxRecord), bad},
		"a blank in the name":          {records(message(serverName("example.com ")), maxRecord), bad},
		"a colon in the name":          {records(message(serverName("example.com:443")), maxRecord), bad},
		"a name that is not ASCII":     {records(message(serverName("ex\u00e4mple.com")), maxRecord), bad},
		"a final dot":                  {records(message(serverName("example.com.")), maxRecord), bad},
		"a name of another type":       {records(message(extension{extServerName, []byte{0, 4, 1, 0, 1, 'a'}}), maxRecord), bad},
		"bytes behind the name":        {records(message(extension{extServerName, []byte{0, 4, 0, 0, 1, 'a', 0}}), maxRecord), bad},
		"an empty list of protocols":   {records(message(alpn()), maxRecord), bad},
		"an empty protocol":            {records(message(alpn("h2", "")), maxRecord), bad},
		"keys that are not at the end": {records(message(extension{extPSK, []byte{1}}, name), maxRecord), bad},
		"more than the bound":          {records(message(name, extension{21, make([]byte, 60000)}), maxRecord), bad},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			for _, piece := range []int{1, 1 << 20} {
				hello, replayed, err := readAll(test.data, piece, 32<<10)
				var malformed *HelloError
				switch test.want {
				case no:
					if err != ErrNoHello {
						t.Errorf("%+v, %v; want ErrNoHello", hello, err)
					}
				case bad:
					if !errors.As(err, &malformed) {
						t.Errorf("%+v, %v; want a HelloError", hello, err)
					}
				default:
					if err == nil || err.Error() != test.want {
						t.Errorf("%+v, %v; want %s", hello, err, test.want)
					}
				}
				if !reflect.DeepEqual(hello, Hello{}) {
					t.Errorf("%+v besides an error", hello)
				}
				if !bytes.Equal(replayed, test.data) {
					t.Errorf("replayed %q of %q", replayed, test.data)
				}
			}
		})
	}
}

// A server that waits for its client's answer must not wait for us.
func TestReadHelloReturnsAtFirstWrongByte(t *testing.T) {
	for _, data := range []string{"S", "\x16\x02", "\x16\x03\x01\x00\x20\x02"} {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		go client.Write([]byte(data))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, _, err := ReadHello(ctx, server, 1<<14); err != ErrNoHello {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestReadHelloEndsWithContext(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go client.Write([]byte("\x16\x03"))
	why := errors.New("the sandbox ends")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	_, r, err := ReadHello(ctx, server, 1<<14)
	if err != why {
		t.Fatal(err)
	}
	// The deadline is gone, and the bytes are still there.
	go client.Write([]byte("\x01"))
	got := make([]byte, 3)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "\x16\x03\x01" {
		t.Fatalf("%q, %v", got, err)
	}
}

// seenByTLS is what crypto/tls reads of a hello.
func seenByTLS(data []byte) (hello Hello, ok bool) {
	conn := &tlsInput{piecewise{data: data, size: 1 << 20, end: io.EOF}}
	errSeen := errors.New("seen")
	err := tls.Server(conn, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello.ServerName, hello.ALPN, ok = info.ServerName, info.SupportedProtos, true
		for _, kind := range info.Extensions {
			hello.ECH = hello.ECH || kind == extECH || kind == extESNI
		}
		return nil, errSeen
	}}).Handshake()
	_ = err
	return hello, ok
}

type tlsInput struct{ piecewise }

func (c *tlsInput) Write(p []byte) (int, error)      { return len(p), nil }
func (c *tlsInput) Close() error                     { return nil }
func (c *tlsInput) SetWriteDeadline(time.Time) error { return nil }

// capture returns the first bytes that the client which start runs sends to a port.
func capture(t *testing.T, start func(port string) error) []byte {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	_, port, _ := net.SplitHostPort(l.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- start(port) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err, <-ended)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	hello, r, err := ReadHello(context.Background(), conn, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	data := r.(*replay).seen
	conn.Close()
	<-ended // it fails, of course
	if hello.ServerName == "" {
		t.Logf("%d bytes without a name", len(data))
	}
	return data
}

func TestReadHelloLikeCryptoTLS(t *testing.T) {
	program := func(name string, args ...string) func(string) error {
		return func(port string) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "PORT", port)
			}
			return exec.CommandContext(ctx, name, args...).Run()
		}
	}
	ours := func(config *tls.Config) func(string) error {
		return func(port string) error {
			conn, err := tls.Dial("tcp", "127.0.0.1:"+port, config)
			if err == nil {
				conn.Close()
			}
			return err
		}
	}
	python := `
import socket, ssl, sys
context = ssl.create_default_context()
context.set_alpn_protocols(["http/1.1"])
context.wrap_socket(socket.create_connection(("127.0.0.1", PORT)), server_hostname="python.example.com")`
	node := `
require("tls").connect({port: PORT, host: "127.0.0.1", servername: "node.example.com", ALPNProtocols: ["h2", "http/1.1"]})
  .on("error", () => process.exit(1))`
	tests := []struct {
		title, program, name string
		start                func(string) error
	}{
		{"Go", "", "go.example.com", ours(&tls.Config{ServerName: "go.example.com", NextProtos: []string{"h2", "http/1.1"}})},
		{"Go with TLS 1.2", "", "go.example.com", ours(&tls.Config{ServerName: "go.example.com", MaxVersion: tls.VersionTLS12})},
		{"Go without a name", "", "", ours(&tls.Config{InsecureSkipVerify: true})},
		{"openssl", "openssl", "ssl.example.com",
			program("openssl", "s_client", "-connect", "127.0.0.1:PORT", "-servername", "ssl.example.com", "-alpn", "h2,http/1.1")},
		{"openssl with TLS 1.2", "openssl", "ssl.example.com",
			program("openssl", "s_client", "-connect", "127.0.0.1:PORT", "-servername", "ssl.example.com", "-tls1_2")},
		{"openssl without a name", "openssl", "", program("openssl", "s_client", "-connect", "127.0.0.1:PORT", "-noservername")},
		{"openssl in small records", "openssl", "ssl.example.com",
			program("openssl", "s_client", "-connect", "127.0.0.1:PORT", "-servername", "ssl.example.com", "-max_send_frag", "512")},
		{"curl", "curl", "curl.example.com",
			program("curl", "-s", "--resolve", "curl.example.com:PORT:127.0.0.1", "https://curl.example.com:PORT/")},
		{"python", "python3", "python.example.com", func(port string) error {
			return program("python3", "-c", strings.ReplaceAll(python, "PORT", port))(port)
		}},
		{"node", "node", "node.example.com", func(port string) error {
			return program("node", "-e", strings.ReplaceAll(node, "PORT", port))(port)
		}},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			if test.program != "" {
				if _, err := exec.LookPath(test.program); err != nil {
					t.Skip(err)
				}
			}
			data := capture(t, test.start)
			got, _, err := readAll(data, 1, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			want, ok := seenByTLS(data)
			if !ok || !reflect.DeepEqual(got, want) || got.ServerName != test.name {
				t.Errorf("%+v; crypto/tls reads %+v, %v; the name is %q", got, want, ok, test.name)
			}
		})
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add(records(message(grease, serverName("example.com"), alpn("h2")), maxRecord), uint8(255))
	f.Add(records(message(serverName("a.example.com", "b.example.com")), 7), uint8(1))
	f.Add(records(message(serverName("a"), serverName("b")), maxRecord), uint8(9))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		hello, replayed, err := readAll(data, int(piece)+1, 1<<15)
		if !bytes.Equal(replayed, data) {
			t.Fatalf("replayed %d of %d bytes", len(replayed), len(data))
		}
		if err != nil {
			return
		}
		// Another reader sees the same or nothing.
		if want, ok := seenByTLS(data); ok && !reflect.DeepEqual(hello, want) {
			t.Fatalf("%+v; crypto/tls reads %+v", hello, want)
		}
		if fmt.Sprintf("%q", hello.ServerName) != `"`+hello.ServerName+`"` {
			t.Fatalf("the name %q", hello.ServerName)
		}
	})
}
