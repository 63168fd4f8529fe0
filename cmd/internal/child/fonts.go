package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/server"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/cmd/internal/usercache"
)

const (
	// fontDelay keeps the short runs from paying for the list of fonts.
	fontDelay   = 500 * time.Millisecond
	fontTimeout = 2 * time.Minute
)

// fonts gives matplotlib its list of fonts: the one that an earlier process has kept,
// or else, a little later, one that is made in a sandbox of its own and kept. Code of
// users has no part in it.
type fonts struct {
	root   template.Root
	file   string // where the list is kept; empty if nowhere
	cancel context.CancelFunc
	done   chan struct{}
}

// provideFonts begins; close ends it.
func provideFonts(key string, root template.Root, cfg host.Config) *fonts {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fonts{root: root, cancel: cancel, done: make(chan struct{})}
	if cache, err := usercache.Dir(); err == nil {
		f.file = filepath.Join(cache, "fonts-"+key+".json")
	}
	list, err := f.load()
	if err == nil {
		err = root.PutFontList(list)
	}
	if err == nil {
		close(f.done)
		return f
	}
	go func() {
		defer close(f.done)
		select {
		case <-time.After(fontDelay):
			if err := f.make(ctx, cfg); err != nil && ctx.Err() == nil {
				cfg.Logger.Info("no list of fonts for matplotlib", "err", err)
			}
		case <-ctx.Done():
		}
	}()
	return f
}

func (f *fonts) close() {
	f.cancel()
	<-f.done
}

func (f *fonts) load() (template.FontList, error) {
	file, err := os.Open(f.file)
	if err != nil {
		return template.FontList{}, err
	}
	defer file.Close()
	return template.ReadFontList(file)
}

func (f *fonts) make(ctx context.Context, cfg host.Config) error {
	ctx, cancel := context.WithTimeout(ctx, fontTimeout)
	defer cancel()
	printed, err := runApart(ctx, cfg, template.FontScript)
	if err != nil {
		return err
	}
	list, err := template.ReadFontList(strings.NewReader(printed))
	if err != nil {
		return err
	}
	return errors.Join(f.root.PutFontList(list), f.keep(list))
}

// keep writes the list to its file, as a whole, and removes those of other fonts.
func (f *fonts) keep(list template.FontList) error {
	if f.file == "" {
		return nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "fonts-*"))
	for _, name := range old {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > 30*24*time.Hour {
			_ = os.Remove(name)
		}
	}
	temporary, err := os.CreateTemp(dir, "fonts-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(b)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), f.file)
}

// runApart runs Python in a sandbox that nobody else sees, and returns what it prints.
func runApart(ctx context.Context, cfg host.Config, code string) (string, error) {
	h := host.New(host.Config{Engine: cfg.Engine, Templates: cfg.Templates, MaxSandboxes: 1, Boots: 1})
	defer h.Close()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: server.New(server.Config{Host: server.Local(h)}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	transport := &http.Transport{DialContext: l.dial}
	defer transport.CloseIdleConnections()
	client, err := cubby.NewClient(cubby.Config{APIURL: "http://cubby", SandboxURL: "http://cubby", APIKey: "none", Transport: transport})
	if err != nil {
		return "", err
	}
	sbx, err := client.Create(ctx)
	if err != nil {
		return "", err
	}
	ex, err := sbx.RunCode(ctx, code)
	if err != nil {
		return "", err
	}
	if ex.Error != nil || ex.Truncated {
		return "", fmt.Errorf("making it failed: %v, cut off: %v", ex.Error, ex.Truncated)
	}
	return ex.Stdout, nil
}

// pipeListener accepts what its own dial connects, without a socket.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is called once, by the server that it belongs to.
func (l *pipeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "fonts", Net: "cubby"} }
