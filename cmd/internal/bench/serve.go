//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/server"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/namespace"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// What the server must not exceed.
const (
	maxRequestRatio = 1.5 // a request through the server, of one that is dialled straight into the guest
	minStreamRatio  = 0.5 // speed of /files through the server, of a bare stream
	maxIdleRatio    = 8.0 // memory of idle proxied connections, of those of a plain reverse proxy
)

const (
	streamBytes = 100 << 20
	idleConns   = 500
	roleVar     = "CUBBY_BENCH_ROLE"
)

// Ports of the program that runs in the sandbox.
const (
	webPort    = 8000
	sinkPort   = 8001
	sourcePort = 8002
)

// serveBench compares the server with what it is made of: engine, host and
// server live in a process of their own, as in `cubby serve`, where the guest can
// be dialled directly, too.
func serveBench(binary string, n int, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, binary, strconv.Itoa(n))
	cmd.Env = append(os.Environ(), roleVar+"=server")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = namespace.Attr()
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	runtime.LockOSThread() // Pdeathsig is about the thread
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// role runs this process as one of the benchmark's others.
func role(name string) error {
	ctx := context.Background()
	switch name {
	case "server":
		n, err := strconv.Atoi(os.Args[2])
		if err != nil {
			return err
		}
		return measureServer(ctx, os.Args[1], n)
	case "inside":
		return inside()
	case "backend":
		return listenAndSay(http.HandlerFunc(web))
	case "proxy":
		return plainProxy(os.Args[1])
	case "idle":
		return idleClient(os.Args[1], os.Args[2:])
	}
	return fmt.Errorf("unknown role %q", name)
}

// inside is the program in the sandbox: a web server, a sink and a source.
func inside() error {
	listen := func(port int, serve func(net.Conn)) error {
		l, err := net.Listen("tcp", local(port))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		return nil
	}
	if err := listen(sinkPort, func(c net.Conn) {
		defer c.Close()
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
		_, _ = c.Write([]byte{1})
	}); err != nil {
		return err
	}
	if err := listen(sourcePort, func(c net.Conn) {
		defer c.Close()
		chunk := make([]byte, 256<<10)
		for sent := 0; sent < streamBytes; sent += len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}); err != nil {
		return err
	}
	return http.ListenAndServe(local(webPort), http.HandlerFunc(web))
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listenAndSay serves on any port and prints the address.
func listenAndSay(h http.Handler) error {
	l, err := net.Listen("tcp", local(0))
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, h)
}

// web answers at once, or never after its first byte.
func web(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/gc":
		debug.FreeOSMemory()
	case "/wait":
		_, _ = io.WriteString(w, ".")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/ws":
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n.")
		_, _ = c.Read(make([]byte, 1))
	}
}

// plainProxy is what any Go program has in three lines.
func plainProxy(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.FlushInterval = -1
	return listenAndSay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gc" {
			debug.FreeOSMemory()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

// idleClient holds connections open until its input ends: path /wait and /ws
// with a request under way, any other with one that was answered.
func idleClient(base string, args []string) error {
	path, header := args[0], args[1:]
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	for range idleConns {
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			return err
		}
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, u.Host)
		for i := 0; i+1 < len(header); i += 2 {
			fmt.Fprintf(c, "%s: %s\r\n", header[i], header[i+1])
		}
		if path == "/ws" {
			fmt.Fprint(c, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
		}
		fmt.Fprint(c, "\r\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		line, err := bufio.NewReaderSize(c, 512).ReadString('\n')
		if err != nil || !strings.Contains(line, " 200 ") && !strings.Contains(line, " 101 ") {
			return fmt.Errorf("%s: %q %v", path, line, err)
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// lab is a server with one sandbox, in this process.
type lab struct {
	host *host.Host
	box  *host.Sandbox
	url  string
	web  *http.Client // of the server
	undo []func() error
}

func (l *lab) close() (err error) {
	for _, undo := range slices.Backward(l.undo) {
		err = errors.Join(err, undo())
	}
	return err
}

func openLab(ctx context.Context, binary string) (_ *lab, err error) {
	l := &lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cubby-bench-")
	if err != nil {
		return nil, err
	}
	l.undo = append(l.undo, func() error { return os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	for _, d := range []string{"root", "gv"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o711); err != nil {
			return nil, err
		}
	}
	tools, err := template.Find(ctx, template.Options{Python: "/usr/bin/python3"})
	if err != nil {
		return nil, err
	}
	root, err := template.Compose(ctx, filepath.Join(dir, "root"), tools, template.Additions{
		Programs: template.Programs{Guest: filepath.Join(filepath.Dir(binary), "cubby-guest"), TypeScript: filepath.Join(filepath.Dir(binary), "cubby-typescript")},
	})
	if err != nil {
		return nil, err
	}
	l.undo = append(l.undo, root.Close)
	cgroups, err := cgroup.Detect("", "", "")
	if err != nil {
		cgroups = nil
	} else {
		l.undo = append(l.undo, cgroups.Close)
	}
	eng, err := gvisor.New(engine.Config{StateDir: filepath.Join(dir, "gv"), OverlayDir: "/var/tmp",
		Helper: filepath.Join(filepath.Dir(binary), "cubby-engine"), Cgroups: cgroups})
	if err != nil {
		return nil, err
	}
	l.host = host.New(host.Config{Engine: eng, Templates: host.Toolchain(host.Template{
		Root: root.Dir, Guest: []string{root.GuestPath},
		Env: []string{"PATH=" + root.Path, "LANG=C.UTF-8", "CUBBY_PYTHON=" + root.Python, "CUBBY_NODE=" + root.Node, "CUBBY_BASH=" + root.Bash, "CUBBY_TYPESCRIPT=" + root.TypeScriptPath},
	})})
	l.undo = append(l.undo, l.host.Close)
	listener, err := net.Listen("tcp", local(0))
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: server.New(server.Config{Host: server.Local(l.host)}), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(listener) }()
	l.undo = append(l.undo, srv.Close)
	l.url, l.web = "http://"+listener.Addr().String(), &http.Client{Transport: &http.Transport{DisableCompression: true}}

	if l.box, err = l.host.Create(ctx, host.CreateRequest{NewSandbox: protocol.NewSandbox{TemplateID: "base"}, Secure: true}); err != nil {
		return nil, err
	}
	return l, l.startInside(ctx)
}

// request is one to a port of the sandbox, by the server.
func (l *lab) request(ctx context.Context, port int, method, path string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, l.url+path, body)
	if err != nil {
		panic(err) // of constants
	}
	r.Header.Set(protocol.HeaderSandboxID, l.box.ID)
	r.Header.Set(protocol.HeaderSandboxPort, strconv.Itoa(port))
	r.Header.Set(protocol.HeaderAccessToken, l.box.Token)
	return r
}

// startInside copies this program into the sandbox and runs it there.
func (l *lab) startInside(ctx context.Context) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	r := l.request(ctx, protocol.EnvdPort, "POST", "/files?path=/home/user/inside", self)
	r.Header.Set("Content-Type", "application/octet-stream")
	if err := finish(l.web.Do(r)); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	code, err := json.Marshal(protocol.ExecuteRequest{Language: "bash", Code: "chmod +x inside\n" + roleVar + "=inside setsid ./inside >/dev/null 2>&1 </dev/null &"})
	if err != nil {
		return err
	}
	if err := finish(l.web.Do(l.request(ctx, protocol.CodeInterpreterPort, "POST", "/execute", bytes.NewReader(code)))); err != nil {
		return fmt.Errorf("run the program: %w", err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := finish(l.web.Do(l.request(ctx, webPort, "GET", "/", nil)))
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// finish reads an answer, which must be a good one.
func finish(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	_, err = io.Copy(struct{ io.Writer }{io.Discard}, resp.Body)
	return err
}

func measureServer(ctx context.Context, binary string, n int) error {
	l, err := openLab(ctx, binary)
	if err != nil {
		return err
	}
	missed, err := l.measure(ctx, n)
	if err := errors.Join(err, l.close()); err != nil {
		return err
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// measure prints each comparison, and returns those that miss their goal.
func (l *lab) measure(ctx context.Context, n int) (missed []string, err error) {
	check := func(what string, ok bool) {
		if !ok {
			missed = append(missed, what)
		}
	}
	fmt.Printf("%-48s %9s %9s %9s   %9s %9s\n", "", "straight", "server", "ratio", "p95", "ratio")
	for _, c := range []struct {
		name string
		port int
		path string
	}{{"GET /health of envd", protocol.EnvdPort, "/health"}, {"GET / of a program's port", webPort, "/"}} {
		straight, through, err := l.requests(ctx, c.port, c.path, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		p50, last := ratio(median(through), median(straight)), ratio(quantile(through, 95), quantile(straight, 95))
		fmt.Printf("%-48s %7.3fms %7.3fms %8.2fx   %7.3fms %8.2fx   (n=%d)\n", c.name, ms(median(straight)), ms(median(through)), p50,
			ms(quantile(through, 95)), last, len(through))
		check(c.name, p50 <= maxRequestRatio && last <= maxRequestRatio)
	}

	fmt.Printf("\n%-48s %9s %9s %9s\n", fmt.Sprintf("%d MB", streamBytes>>20), "bare", "/files", "ratio")
	for _, c := range []struct {
		name          string
		bare, through func(context.Context) error
	}{{"upload", l.sink, l.upload}, {"download", l.source, l.download}} {
		bare, through, err := inTurn(5, func() error { return c.bare(ctx) }, func() error { return c.through(ctx) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		b, t := speed(median(bare)), speed(median(through))
		fmt.Printf("%-48s %5.0fMB/s %5.0fMB/s %8.2fx\n", c.name, b, t, t/b)
		check(c.name, t/b >= minStreamRatio)
	}

	fmt.Printf("\n%-48s %9s %9s %9s\n", fmt.Sprintf("memory of a connection, of %d that are idle", idleConns), "plain", "cubby", "ratio")
	for _, c := range []struct{ name, path string }{{"kept alive", "/"}, {"in a stream", "/wait"}, {"upgraded", "/ws"}} {
		plain, cubby, err := l.idle(ctx, c.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("%-48s %7.1fKB %7.1fKB %8.2fx   (guest %.1fKB, its kernel %.1fKB, server %.1fKB)\n", c.name, plain, cubby.total(), cubby.total()/plain,
			cubby.guest, cubby.kernel, cubby.server)
		check("idle connections, "+c.name, cubby.total() <= maxIdleRatio*plain)
	}
	return missed, nil
}

// requests sends the same request n times each way, in turn.
func (l *lab) requests(ctx context.Context, port int, path string, n int) (straight, through []time.Duration, err error) {
	direct := &http.Client{Transport: l.box.Ports().Transport(port)}
	r, err := http.NewRequestWithContext(ctx, "GET", "http://guest"+path, nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set(protocol.HeaderAccessToken, l.box.Token)
	viaServer := l.request(ctx, port, "GET", path, nil)
	return inTurn(n, func() error { return finish(direct.Do(r)) }, func() error { return finish(l.web.Do(viaServer)) })
}

// inTurn measures two things n times each; a tenth more before that fills
// caches.
func inTurn(n int, a, b func() error) (as, bs []time.Duration, err error) {
	for i := -(n + 9) / 10; i < n; i++ {
		for _, m := range []struct {
			do    func() error
			times *[]time.Duration
		}{{a, &as}, {b, &bs}} {
			start := time.Now()
			if err := m.do(); err != nil {
				return nil, nil, err
			}
			if i >= 0 {
				*m.times = append(*m.times, time.Since(start))
			}
		}
	}
	return as, bs, nil
}

func quantile(d []time.Duration, percent int) time.Duration {
	return slices.Sorted(slices.Values(d))[len(d)*percent/100]
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func speed(d time.Duration) float64 { return streamBytes / d.Seconds() / 1e6 }

// sink sends a bare stream into the sandbox and waits until it was read.
func (l *lab) sink(ctx context.Context) error {
	c, err := l.box.Ports().Dial(ctx, sinkPort)
	if err != nil {
		return err
	}
	defer c.Close()
	chunk := make([]byte, 256<<10)
	for sent := 0; sent < streamBytes; sent += len(chunk) {
		if _, err := c.Write(chunk); err != nil {
			return err
		}
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// source reads a bare stream out of the sandbox.
func (l *lab) source(ctx context.Context) error {
	c, err := l.box.Ports().Dial(ctx, sourcePort)
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
	if err == nil && n != streamBytes {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// random does not compress, as little as most large files do.
var random = func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.Read(b)
	return b
}()

func (l *lab) upload(ctx context.Context) error {
	body := io.LimitReader(forever{}, streamBytes)
	r := l.request(ctx, protocol.EnvdPort, "POST", "/files?path=/home/user/big", body)
	r.ContentLength = streamBytes
	r.Header.Set("Content-Type", "application/octet-stream")
	return finish(l.web.Do(r))
}

type forever struct{}

func (forever) Read(b []byte) (int, error) { return copy(b, random), nil }

func (l *lab) download(ctx context.Context) error {
	r := l.request(ctx, protocol.EnvdPort, "GET", "/files?path=/home/user/big", nil)
	r.Header.Set("Accept-Encoding", "identity")
	return finish(l.web.Do(r))
}
