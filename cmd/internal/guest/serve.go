//go:build linux

package guest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/channel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Run is a guest on f, the end of the channel, until ctx is done. It takes over f.
func Run(ctx context.Context, cfg settings.Config, f *os.File) error {
	g, err := New(ctx, cfg)
	if err != nil {
		_ = f.Close()
		return err
	}
	defer g.Close()
	var servers sync.WaitGroup
	defer servers.Wait()
	listeners := map[int]*listener{}
	for port, h := range map[int]http.Handler{protocol.EnvdPort: g.Envd(), protocol.CodeInterpreterPort: g.CodeInterpreter()} {
		l := &listener{conns: make(chan net.Conn, 64), closed: make(chan struct{})}
		listeners[port] = l
		srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug)}
		servers.Go(func() { _ = srv.Serve(l) })
		defer srv.Close()
	}
	return channel.Serve(ctx, f, func(port int, c net.Conn) bool {
		l := listeners[port]
		if l == nil {
			return false
		}
		go l.give(c)
		return true
	}, g.Restored)
}

// listener hands the channel's connections to an http.Server.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "channel", Net: "cubby"} }
