//go:build linux

// Package watch tells clients what happens in folders: the calls of envd's
// filesystem.Filesystem that watch.
package watch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/files"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

const (
	// maxWatches bounds the watches of a sandbox, streamed and polled.
	maxWatches = 256
	// idleTime is how long a polled watch must not have been asked for to give way
	// when there is room for no other: its client is gone.
	idleTime = 10 * time.Minute
)

// table are all watches of a guest.
type table struct {
	budget budget

	mu     sync.Mutex
	count  int
	polled map[string]*polledWatch
}

type polledWatch struct {
	*watch
	asked time.Time
}

// reserve makes room for one more watch.
func (ws *table) reserve() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count >= maxWatches {
		oldest := ""
		for id, p := range ws.polled {
			if time.Since(p.asked) > idleTime && (oldest == "" || p.asked.Before(ws.polled[oldest].asked)) {
				oldest = id
			}
		}
		if oldest == "" {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d watches already: stop one", maxWatches))
		}
		ws.polled[oldest].close()
		delete(ws.polled, oldest)
		ws.count--
	}
	ws.count++
	return nil
}

func (ws *table) release() {
	ws.mu.Lock()
	ws.count--
	ws.mu.Unlock()
}

// Service serves the calls of envd's filesystem.Filesystem that watch.
type Service struct {
	files *files.Service
	ctx   context.Context // done when the guest ends
	wg    sync.WaitGroup  // of the watches
	table table
}

// New returns a service that lives until ctx is done; then wait must be
// called.
func New(ctx context.Context, files *files.Service) *Service {
	return &Service{files: files, ctx: ctx}
}

// Restored says that the machine was restored: the time before that, which polled
// watches were not asked for, does not count.
func (s *Service) Restored() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, p := range s.table.polled {
		p.asked = time.Now()
	}
}

// Wait waits until nothing of the watches is left. The service's context is done.
func (s *Service) Wait() { s.wg.Wait() }

// watchRequest is what the two calls that begin a watch have in common. None of a
// sandbox's file systems is a network's, so whether those are allowed changes
// nothing.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
}

// watch begins to watch. Whoever called it releases its place when it is closed.
func (s *Service) watch(ctx context.Context, h http.Header, req watchRequest) (*watch, error) {
	_, name, err := s.files.Locate(h, req.GetPath())
	if err != nil {
		return nil, err
	}
	if err := s.table.reserve(); err != nil {
		return nil, err
	}
	w, err := s.newWatch(ctx, name, req.GetRecursive(), req.GetIncludeEntry())
	if err != nil {
		s.table.release()
		return nil, err
	}
	return w, nil
}

// WatchDir streams what happens in a folder, from before its first message on,
// until the client goes, its time is over or the watch fails: a client that is too
// slow for what happens gets resource_exhausted after the last event that was kept.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[envd.WatchDirRequest],
	stream *connect.ServerStream[envd.WatchDirResponse]) error {
	w, err := s.watch(ctx, req.Header(), req.Msg)
	if err != nil {
		return err
	}
	defer s.table.release()
	defer w.close()
	start := &envd.WatchDirResponse_Start{Start: &envd.WatchDirResponse_StartEvent{}}
	if err := stream.Send(&envd.WatchDirResponse{Event: start}); err != nil {
		return err
	}
	interval := reply.KeepaliveInterval(req.Header())
	silent := time.NewTicker(interval)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, context.Canceled)
		case <-silent.C:
			alive := &envd.WatchDirResponse_Keepalive{Keepalive: &envd.WatchDirResponse_KeepAlive{}}
			if err := stream.Send(&envd.WatchDirResponse{Event: alive}); err != nil {
				return err
			}
		case <-w.wake:
			for ctx.Err() == nil {
				e, err := w.next()
				if err != nil {
					return err
				}
				if e == nil {
					break
				}
				if err := stream.Send(&envd.WatchDirResponse{Event: &envd.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
					return err
				}
				silent.Reset(interval)
			}
		}
	}
}

// CreateWatcher begins a watch whose events are fetched with GetWatcherEvents.
func (s *Service) CreateWatcher(ctx context.Context,
	req *connect.Request[envd.CreateWatcherRequest]) (*connect.Response[envd.CreateWatcherResponse], error) {
	w, err := s.watch(ctx, req.Header(), req.Msg)
	if err != nil {
		return nil, err
	}
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	id := "w" + hex.EncodeToString(b[:])
	ws := &s.table
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.polled == nil {
		ws.polled = map[string]*polledWatch{}
	}
	ws.polled[id] = &polledWatch{w, time.Now()}
	return connect.NewResponse(&envd.CreateWatcherResponse{WatcherId: id}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", reply.Cut(id)))
}

// GetWatcherEvents returns the events since the last call. Where more happened than
// is kept, it returns what was kept, and resource_exhausted from then on.
func (s *Service) GetWatcherEvents(_ context.Context,
	req *connect.Request[envd.GetWatcherEventsRequest]) (*connect.Response[envd.GetWatcherEventsResponse], error) {
	ws := &s.table
	ws.mu.Lock()
	p := ws.polled[req.Msg.GetWatcherId()]
	if p != nil {
		p.asked = time.Now()
	}
	ws.mu.Unlock()
	if p == nil {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	resp := &envd.GetWatcherEventsResponse{}
	for {
		e, err := p.next()
		if err != nil && len(resp.Events) == 0 {
			return nil, err
		}
		if e == nil {
			return connect.NewResponse(resp), nil
		}
		resp.Events = append(resp.Events, e)
	}
}

// RemoveWatcher ends a watch of CreateWatcher.
func (s *Service) RemoveWatcher(_ context.Context,
	req *connect.Request[envd.RemoveWatcherRequest]) (*connect.Response[envd.RemoveWatcherResponse], error) {
	ws := &s.table
	ws.mu.Lock()
	p := ws.polled[req.Msg.GetWatcherId()]
	if p != nil {
		delete(ws.polled, req.Msg.GetWatcherId())
		ws.count--
	}
	ws.mu.Unlock()
	if p == nil {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	p.close()
	return connect.NewResponse(&envd.RemoveWatcherResponse{}), nil
}
