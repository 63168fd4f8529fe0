package embedded

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/namespace"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// startTimeout bounds the child's start, in which it only mounts and listens.
const startTimeout = 30 * time.Second

// Open starts a private Cubby. ctx bounds the start only.
func Open(ctx context.Context, cfg Config) (_ *Cubby, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = 10 * time.Second
	}
	binary, err := findBinary(cfg.Binary)
	if err != nil {
		return nil, err
	}
	sweep()
	ch, err := start(ctx, binary, cfg)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(ch.runDir, handshake.SocketName)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
	}
	ch.transport = transport
	client, err := cubby.NewClient(cubby.Config{
		APIURL: "http://cubby", SandboxURL: "http://cubby", APIKey: "embedded",
		HTTPClient: &http.Client{Transport: transport}, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, ch.close())
	}
	return &Cubby{Client: client, child: ch}, nil
}

// findBinary follows the order that Config.Binary documents.
func findBinary(configured string) (string, error) {
	const remedy = "build it with `make` and put bin/cubby on PATH, or name it with Config.Binary or CUBBY_BINARY"
	for _, c := range []struct{ path, from string }{{configured, "Config.Binary"}, {os.Getenv("CUBBY_BINARY"), "CUBBY_BINARY"}} {
		if c.path == "" {
			continue
		}
		path, err := exec.LookPath(c.path)
		if err != nil {
			return "", unavailable(fmt.Errorf("%s: %w", c.from, err), remedy)
		}
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "cubby" {
		return self, nil
	}
	path, err := exec.LookPath("cubby")
	if err != nil {
		return "", unavailable(errors.New("the cubby binary was not found"), remedy)
	}
	return filepath.Abs(path)
}

func unavailable(err error, hint string) error {
	return &cubby.Error{Op: "open", Code: cubby.CodeUnavailable, Err: err, Hint: hint}
}

// child is the process and the folder it was given.
type child struct {
	cmd       *exec.Cmd
	runDir    string
	life      *os.File // closing it ends the child
	lock      *os.File
	exited    chan struct{}
	waitErr   error
	log       *tail
	timeout   time.Duration
	transport *http.Transport

	once     sync.Once
	closeErr error
}

func start(ctx context.Context, binary string, cfg Config) (_ *child, err error) {
	c := &child{exited: make(chan struct{}), log: &tail{log: cfg.Logger}, timeout: cfg.StopTimeout}
	defer func() {
		if err != nil {
			c.cleanUp()
		}
	}()
	if err := c.makeRunDir(); err != nil {
		return nil, unavailable(err, "Cubby needs a writable folder for temporary files: set TMPDIR")
	}
	listener, err := listen(filepath.Join(c.runDir, handshake.SocketName))
	if err != nil {
		return nil, unavailable(err, "the socket's path must be short: set TMPDIR to a shorter one")
	}
	defer listener.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readyR.Close()
	defer readyW.Close()
	lifeR, lifeW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeR.Close()
	c.life = lifeW

	args := []string{"serve", "--" + handshake.FlagPrivate, "--" + handshake.FlagExpect, version.Version, "--" + handshake.FlagRunDir, c.runDir}
	for flag, value := range map[string]string{
		handshake.FlagPython: cmp.Or(cfg.Python, os.Getenv("CUBBY_PYTHON")),
		handshake.FlagNode:   cmp.Or(cfg.Node, os.Getenv("CUBBY_NODE")),
	} {
		if value != "" {
			args = append(args, "--"+flag, value)
		}
	}
	if cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		args = append(args, "--"+handshake.FlagVerbose)
	}
	c.cmd = exec.Command(binary, args...)
	c.cmd.ExtraFiles = []*os.File{listener, readyW, lifeR, c.lock} // FDListener and on
	c.cmd.Stderr = c.log
	c.cmd.SysProcAttr = namespace.Attr()
	c.cmd.SysProcAttr.Setpgid = true // a terminal's Ctrl-C is for this program
	if err := c.cmd.Start(); err != nil {
		return nil, unavailable(fmt.Errorf("start sandbox process: %w", err), namespace.Hint(err))
	}
	readyW.Close()
	go func() {
		c.waitErr = c.cmd.Wait()
		close(c.exited)
	}()
	hello, err := c.await(ctx, readyR)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	switch {
	case hello.Mismatch || hello.Version != version.Version:
		err = &cubby.Error{Op: "open", Code: cubby.CodeIncompatible, Err: fmt.Errorf("%s is version %q, this program needs %s", binary, hello.Version, version.Version),
			Hint: "rebuild both from the same source, or name the right binary with CUBBY_BINARY"}
	case hello.Error != "":
		hint := hello.Hint
		if hint == "" {
			hint = "run `cubby doctor` to see what this machine lacks"
		}
		err = unavailable(errors.New(hello.Error), hint)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// await reads the child's hello.
func (c *child) await(ctx context.Context, ready *os.File) (handshake.Hello, error) {
	var h handshake.Hello
	deadline := time.Now().Add(startTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ready.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReaderSize(ready, 64<<10).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	switch {
	case err == nil:
		return h, nil
	case ctx.Err() != nil:
		return h, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return h, unavailable(fmt.Errorf("%s did not start within %v", c.cmd.Path, startTimeout), "run `cubby doctor`")
	}
	// It ended without a word: an older cubby, or none at all.
	select {
	case <-c.exited:
	case <-time.After(c.timeout):
	}
	return h, &cubby.Error{Op: "open", Code: cubby.CodeIncompatible,
		Err:  fmt.Errorf("%s ended at once: %s", c.cmd.Path, strings.TrimSpace(c.log.last())),
		Hint: "it must be a cubby of version " + version.Version + "; name the right one with CUBBY_BINARY"}
}

// makeRunDir makes the folder that parent and child share. Its path is open to
// search, since gVisor's processes are other users; the socket's folder is not.
func (c *child) makeRunDir() error {
	dir, err := os.MkdirTemp(runBase(), handshake.RunPrefix)
	if err != nil {
		return err
	}
	c.runDir = dir
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, handshake.SocketDir), 0o700); err != nil {
		return err
	}
	c.lock, err = lockFile(filepath.Join(dir, handshake.LockName))
	return err
}

// maxRunBase leaves room for the run folder's name and the sockets in it.
const maxRunBase = 48

// runBase is the folder for temporary files, unless its path is too long for
// sockets below it.
func runBase() string {
	if dir := os.TempDir(); len(dir) <= maxRunBase {
		return dir
	}
	return "/tmp"
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the run folders of parents and children that were both killed.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(runBase(), handshake.RunPrefix+"*"))
	for _, dir := range dirs {
		fi, err := os.Lstat(dir)
		if err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < startTimeout {
			continue // just being made, perhaps without its lock yet
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		if lock, err := lockFile(filepath.Join(dir, handshake.LockName)); err == nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}

func listen(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	return l.File()
}

// close asks the child to end, and sees to it.
func (c *child) close() error {
	c.once.Do(func() {
		if c.transport != nil {
			c.transport.CloseIdleConnections()
		}
		c.life.Close()
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		select {
		case <-c.exited:
		case <-timer.C:
			// Its sentries die with it.
			c.cmd.Process.Kill()
			<-c.exited
			c.closeErr = fmt.Errorf("embedded: the child did not end within %v and was killed", c.timeout)
		}
		c.cleanUp()
	})
	return c.closeErr
}

// cleanUp removes what a child that died or never started has left.
func (c *child) cleanUp() {
	if c.life != nil {
		c.life.Close()
	}
	if c.runDir != "" {
		os.RemoveAll(c.runDir)
	}
	if c.lock != nil {
		c.lock.Close()
	}
}

// tail logs the child's lines and keeps the last of them for an error message.
type tail struct {
	log *slog.Logger
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(p) {
		t.log.Info("cubby", "line", string(bytes.TrimRight(line, "\n")))
	}
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailSize {
		t.buf = t.buf[len(t.buf)-tailSize:]
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
