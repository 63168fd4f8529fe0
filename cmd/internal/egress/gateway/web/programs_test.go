package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// opened is a gateway that opens TLS: clients trust authority's certificate, which
// is in a file, and the host's is verified.
func opened(t testing.TB, handler http.HandlerFunc, opts ForwardOptions) (port, file string) {
	t.Helper()
	ours, _ := authority(t)
	theirs, roots := authority(t)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = theirs.ServerConfig("localhost")
	server.StartTLS()
	t.Cleanup(server.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.TLS = "localhost", uint16(l.Addr().(*net.TCPAddr).Port), true
	opts.Dial = func(ctx context.Context) (net.Conn, error) {
		d := tls.Dialer{Config: ClientConfig("localhost", roots)}
		return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				hello, r, err := ReadHello(ctx, conn, 1<<16)
				if err != nil || hello.ServerName != "localhost" {
					t.Errorf("%+v, %v", hello, err)
					conn.Close()
					return
				}
				client := tls.Server(Replay(conn, r), ours.ServerConfig(hello.ServerName))
				if err := client.HandshakeContext(ctx); err != nil {
					t.Error(err)
					conn.Close()
					return
				}
				if err := Forward(ctx, client, opts); err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error shows the value: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); running.Wait() })
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ours.Certificate(), 0o644); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(opts.Port), file
}

// The host must be who it is: no header is sent to another.
func TestForwardVerifiesHost(t *testing.T) {
	theirs, _ := authority(t)
	_, others := authority(t)
	reached := make(chan bool, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- true }))
	server.TLS = theirs.ServerConfig(host)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	for title, roots := range map[string]*x509.CertPool{"another authority": others, "no roots": nil} {
		g := start(t, "", ForwardOptions{Host: host, Port: 443, TLS: true, Headers: map[string]string{"X": "s3cret"},
			Dial: func(ctx context.Context) (net.Conn, error) {
				d := tls.Dialer{Config: ClientConfig(host, roots)}
				return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
			}})
		if answer := g.raw(t, get(hostLine)); !strings.HasPrefix(answer, "HTTP/1.1 502 ") {
			t.Errorf("%s: %q", title, answer)
		}
		if err := g.end(t); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", title, err)
		}
	}
	select {
	case <-reached:
		t.Error("the request was passed on")
	default:
	}
}

const pythonClient = `
import http.client, ssl, sys
file, port = sys.argv[1:]
context = ssl.create_default_context(cafile=file)
c = http.client.HTTPSConnection("localhost", int(port), context=context, timeout=30)
for body in (b"x" * 300000, (b"y" * 1000 for _ in range(300))):
    c.request("POST", "/", body=body, headers={"Authorization": "mine"})
    answer = c.getresponse()
    print(answer.status, len(answer.read()), answer.headers["X-Seen"])
`

const requestsClient = `
import requests, sys
file, port = sys.argv[1:]
s = requests.Session()
s.trust_env = False
for body in (b"x" * 300000, (b"y" * 1000 for _ in range(300))):
    answer = s.post("https://localhost:" + port + "/", data=body, headers={"authorization": "mine"}, verify=file)
    print(answer.status_code, len(answer.content), answer.headers["x-seen"])
`

const nodeClient = `
const [file, port] = process.argv.slice(1)
const https = require("https"), agent = new https.Agent({keepAlive: true, maxSockets: 1})
const post = (chunks, headers) => new Promise((done, failed) => {
  const q = https.request({host: "localhost", port, agent, method: "POST", ca: require("fs").readFileSync(file),
    headers: {...headers, AUTHORIZATION: "mine"}}, answer => {
    let n = 0
    answer.on("data", d => n += d.length).on("end", () => { console.log(answer.statusCode, n, answer.headers["x-seen"]); done() })
  })
  q.on("error", failed)
  for (const c of chunks) q.write(c)
  q.end()
})
const once = () => post(["x".repeat(300000)], {"Content-Length": 300000})
once().then(() => post(Array(300).fill("y".repeat(1000)), {})).then(() => agent.destroy())
`

// Programs send bodies of known and of unknown length on one connection, with a
// header of their own that is replaced, and get no more of the value than stars.
func TestForwardPrograms(t *testing.T) {
	const value = "Bearer s3cret"
	handler := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		if got := r.Header.Values("Authorization"); len(got) != 1 || got[0] != value {
			t.Errorf("the host got %q", got)
		}
		w.Header().Set("X-Seen", "<"+r.Header.Get("Authorization")+">")
		io.WriteString(w, value)
		io.Copy(w, r.Body)
	}
	port, file := opened(t, handler, ForwardOptions{
		Headers: map[string]string{"Authorization": value}, Redact: [][]byte{[]byte(value), []byte("s3cret")},
	})
	seen := fmt.Sprintf("200 %d <%s>\n", 300000+len(value), strings.Repeat("*", len(value)))
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(strings.Repeat("x", 300000)), 0o644); err != nil {
		t.Fatal(err)
	}
	url := "https://localhost:" + port + "/"
	curl := []string{"-sS", "--noproxy", "*", "--cacert", file, "-H", "authorization: mine", "--output", os.DevNull,
		"-w", "%{http_code} %{size_download} %header{x-seen}\n"}
	sized := append(append([]string{}, curl...), "--data-binary", "@"+body, url)
	streamed := append(append([]string{}, curl...), "-T", "-", "-X", "POST", url)
	waiting := append(append([]string{}, curl...), "-H", "Expect: 100-continue", "--expect100-timeout", "30", "--data-binary", "@"+body, url)
	for _, test := range []struct {
		title string
		args  []string
		want  string
	}{
		{"curl", append([]string{"curl"}, sized...), seen},
		{"curl with chunks", append([]string{"curl"}, streamed...), seen},
		{"curl that waits", append([]string{"curl"}, waiting...), seen},
		{"curl with HTTP/1.0", append([]string{"curl", "--http1.0", "--no-alpn"}, sized...), seen},
		{"http.client", []string{"python3", "-c", pythonClient, file, port}, seen + seen},
		{"requests", []string{"python3", "-c", requestsClient, file, port}, seen + seen},
		{"node", []string{"node", "-e", nodeClient, file, port}, seen + seen},
	} {
		t.Run(test.title, func(t *testing.T) {
			if _, err := exec.LookPath(test.args[0]); err != nil {
				t.Skip(err)
			}
			if test.title == "requests" && exec.Command("python3", "-c", "import requests").Run() != nil {
				t.Skip("Python has no requests")
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, test.args[0], test.args[1:]...)
			in, err := os.Open(body)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			command.Stdin = in
			begun := time.Now()
			if out, err := command.CombinedOutput(); err != nil || string(out) != test.want {
				t.Errorf("%v: %q, not %q", err, out, test.want)
			}
			if test.title == "curl that waits" && time.Since(begun) > 20*time.Second {
				t.Error("nobody has said that it may go on")
			}
		})
	}
}

// Go's client and WebSocket-like connections through both ends' TLS, with half-closes.
func TestForwardUpgradeOverTLS(t *testing.T) {
	port, file := opened(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, handshakeAnswer)
		text, _ := io.ReadAll(rw)
		fmt.Fprintf(conn, "%s from %s", text, r.Header.Get("X"))
	}, ForwardOptions{Headers: map[string]string{"X": "s3cret"}, Redact: [][]byte{[]byte("s3cret")}})
	roots := x509.NewCertPool()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots.AppendCertsFromPEM(text)
	conn, err := tls.Dial("tcp", "127.0.0.1:"+port, ClientConfig("localhost", roots))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost:"+port+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
	conn.CloseWrite()
	all, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(all), "\r\n\r\nhello from ******") {
		t.Errorf("%q, %v", all, err)
	}
}
