//go:build linux

package e2e

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// background starts a program that outlives its request.
func (s *server) background(t *testing.T, b box, text string) {
	t.Helper()
	out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "nohup setsid " + text + " >/tmp/background.log 2>&1 < /dev/null &"}, b.routed(portEnvd)...)
	if err != nil || out.Exit != 0 {
		t.Fatalf("%s: %+v, %v", text, out, err)
	}
}

// upload writes a file of a sandbox.
func (s *server) upload(t *testing.T, b box, path, content string) {
	t.Helper()
	a := call(t, http.DefaultClient, "POST", s.URL+"/files?path="+url.QueryEscape(path), content, append(b.routed(portEnvd), "Content-Type", "application/octet-stream")...)
	if a.Status != http.StatusOK {
		t.Fatalf("upload: %v", a)
	}
}

// webServer is a program for a sandbox: /stream sends a line, and the next ones
// as /go is asked for; /echo is a WebSocket that answers each text frame with it.
const webServer = `
import base64, hashlib, http.server, struct, threading
go = threading.Semaphore(0)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def answer(self, body):
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_POST(self):
        n = int(self.headers.get("Content-Length", 0)); total = 0
        while total < n: total += len(self.rfile.read(min(65536, n - total)))
        self.answer(b"%d" % total)
    def do_GET(self):
        if self.path == "/go":
            go.release(); self.answer(b"gone")
        elif self.path == "/stream":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for i in range(3):
                line = b"line %d\n" % i
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line)); self.wfile.flush()
                go.acquire()
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/echo":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()); self.end_headers()
            while True:
                head = self.rfile.read(2)
                if len(head) < 2: break
                size = head[1] & 127
                if size == 126: size = struct.unpack(">H", self.rfile.read(2))[0]
                mask = self.rfile.read(4)
                text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
                out = b"echo " + text
                self.wfile.write(b"\x81" + (bytes([len(out)]) if len(out) < 126 else b"\x7e" + struct.pack(">H", len(out))) + out); self.wfile.flush()
            self.close_connection = True
        else:
            self.answer(self.headers["Host"].encode() + b" " + self.path.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`

// TestPorts reaches what code listens on: plain requests, streams, WebSockets,
// each by headers, by host names and through CONNECT.
func TestPorts(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	s.upload(t, b, "/tmp/web.py", webServer)
	s.background(t, b, "python3 /tmp/web.py")
	name := "8000-" + b.ID + "." + trpcDomain
	byHeaders := func(path string) (string, []string) {
		return s.URL + path, []string{"E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", "8000"}
	}
	until(t, "the port answers", func() error {
		u, header := byHeaders("/")
		if a := call(t, http.DefaultClient, "GET", u, nil, header...); a.Status != 200 {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	proxied := s.viaProxy(t)

	t.Run("request by host name", func(t *testing.T) {
		for _, host := range []string{name, "8000-" + b.ID + "-6532622b." + trpcDomain, strings.ToUpper(name), name + ":80"} {
			a := call(t, proxied, "GET", "http://"+host+"/a%2Fb?c=d%20e", nil)
			if want := "/a%2Fb?c=d%20e"; a.Status != 200 || !strings.HasSuffix(string(a.Body), want) {
				t.Errorf("%s: %v", host, a)
			}
		}
	})
	t.Run("request by the Host header alone", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = name
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != name+" /x" {
			t.Errorf("%q, %v", body, err)
		}
	})
	t.Run("a body of many megabytes", func(t *testing.T) {
		const size = 30_000_000
		a := call(t, proxied, "POST", "http://"+name+"/", strings.NewReader(strings.Repeat("x", size)))
		if string(a.Body) != fmt.Sprint(size) {
			t.Errorf("%v", a)
		}
	})
	t.Run("a stream, line by line", func(t *testing.T) {
		for _, client := range []*http.Client{http.DefaultClient, proxied} {
			u, header := "http://"+name, []string(nil)
			if client == http.DefaultClient {
				u, header = byHeaders("")
			}
			req, err := http.NewRequestWithContext(t.Context(), "GET", u+"/stream", nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i+1 < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(res.Body)
			for i := range 3 {
				// The program sends the next line only after it was told to.
				if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("line %d\n", i) {
					t.Fatalf("%q, %v", line, err)
				}
				call(t, client, "GET", u+"/go", nil, header...)
			}
			if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
				t.Errorf("%q, %v", rest, err)
			}
			res.Body.Close()
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		for way, dial := range map[string]func() (net.Conn, *bufio.Reader, string){
			"by headers": func() (net.Conn, *bufio.Reader, string) {
				conn := s.dial(t)
				return conn, bufio.NewReader(conn), "GET /echo HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: " + b.ID + "\r\nE2b-Sandbox-Port: 8000\r\n"
			},
			"by the Host header": func() (net.Conn, *bufio.Reader, string) {
				conn := s.dial(t)
				return conn, bufio.NewReader(conn), "GET /echo HTTP/1.1\r\nHost: " + name + "\r\n"
			},
			"as a proxy": func() (net.Conn, *bufio.Reader, string) {
				conn := s.dial(t)
				return conn, bufio.NewReader(conn), "GET http://" + name + "/echo HTTP/1.1\r\nHost: " + name + "\r\n"
			},
			"through CONNECT": func() (net.Conn, *bufio.Reader, string) {
				conn := s.dial(t)
				r := bufio.NewReader(conn)
				fmt.Fprintf(conn, "CONNECT %[1]s:80 HTTP/1.1\r\nHost: %[1]s:80\r\n\r\n", name)
				res, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
				if err != nil || res.StatusCode != 200 {
					t.Fatalf("CONNECT: %v, %v", res, err)
				}
				return conn, r, "GET /echo HTTP/1.1\r\nHost: " + name + "\r\n"
			},
		} {
			t.Run(way, func(t *testing.T) {
				conn, r, head := dial()
				const key = "dGhlIHNhbXBsZSBub25jZQ=="
				fmt.Fprintf(conn, "%sConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", head, key)
				res, err := http.ReadResponse(r, nil)
				if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%v, %v", res, err)
				}
				sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
				if got := res.Header.Get("Sec-WebSocket-Accept"); got != base64.StdEncoding.EncodeToString(sum[:]) {
					t.Errorf("accept %q", got)
				}
				for i := range 100 {
					text := fmt.Sprintf("message %d %s", i, strings.Repeat("x", i*7))
					if err := writeText(conn, text); err != nil {
						t.Fatal(err)
					}
					if got, err := readText(r); err != nil || got != "echo "+text {
						t.Fatalf("%q, %v", got, err)
					}
				}
			})
		}
	})
	t.Run("a closed port", func(t *testing.T) {
		want := fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox is running but port is not open","port":8001,"code":502}`, b.ID)
		for _, a := range []answer{
			call(t, http.DefaultClient, "GET", s.URL, nil, "E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", "8001"),
			call(t, proxied, "GET", "http://8001-"+b.ID+"."+trpcDomain, nil),
			call(t, proxied, "POST", "http://8001-"+b.ID+"."+trpcDomain, strings.Repeat("x", 5<<20)),
		} {
			if a.Status != 502 || !sameJSON(a.Body, []byte(want)) {
				t.Errorf("%v", a)
			}
		}
	})
}

// dial connects to the server's port.
func (s *server) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// writeText sends a text frame as a client does: masked.
func writeText(w io.Writer, text string) error {
	frame := []byte{0x81, 0x80 | byte(len(text))}
	if len(text) >= 126 {
		frame = []byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text))}
	}
	mask := [4]byte{1, 2, 3, 4}
	frame = append(frame, mask[:]...)
	for i := range len(text) {
		frame = append(frame, text[i]^mask[i%4])
	}
	_, err := w.Write(frame)
	return err
}

// readText reads an unmasked text frame.
func readText(r io.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	size := int(head[1])
	if size == 126 {
		var more [2]byte
		if _, err := io.ReadFull(r, more[:]); err != nil {
			return "", err
		}
		size = int(more[0])<<8 | int(more[1])
	}
	text := make([]byte, size)
	_, err := io.ReadFull(r, text)
	return string(text), err
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// TestManyStreams runs hundreds of commands at once through the server as a
// proxy, and not one stream may break: a server that ends a request's body when
// its answer begins breaks one to ten in a hundred.
func TestManyStreams(t *testing.T) {
	s := start(t)
	const boxes, each, lines = 4, 75, 60
	client := s.viaProxy(t)
	var want strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "%d of stream\n", i)
	}
	var wg sync.WaitGroup
	for i := range boxes {
		b := s.create(t, s.Key)
		for j := range each {
			wg.Go(func() {
				mark := fmt.Sprintf("box %d command %d", i, j)
				ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
				defer cancel()
				out, err := run(ctx, client, "http://"+portEnvd+"-"+b.ID+"."+trpcDomain, command{
					Text: fmt.Sprintf("for ((i=1; i<=%d; i++)); do echo $i of stream; done; echo %s >&2; exit %d", lines, mark, j%3),
				}, "X-Access-Token", b.Token)
				if err != nil || out.Stdout != want.String() || out.Stderr != mark+"\n" || out.Exit != j%3 {
					t.Errorf("%s: %v, exit %d, %d bytes of output, %q", mark, err, out.Exit, len(out.Stdout), out.Stderr)
				}
			})
		}
	}
	wg.Wait()
}
