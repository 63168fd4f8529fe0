//go:build linux

package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// What one ListDir answers is bounded: in entries, and in bytes of the messages.
const (
	maxEntries   = 100_000
	maxListBytes = 32 << 20
)

// ListDir lists a folder, each folder before what is in it, down to depth. It
// follows no link below the folder. Folders below that cannot be read are listed
// without what is in them: whoever wants to know why lists them.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[envd.ListDirRequest]) (*connect.Response[envd.ListDirResponse], error) {
	_, name, err := s.Locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, ConnectError(name, err)
	}
	if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' is not a directory", name))
	}
	l := listing{files: s, ctx: ctx}
	for header, n := range map[string]*int{protocol.HeaderListSkip: &l.skip, protocol.HeaderListMax: &l.max} {
		if v := req.Header().Get(header); v != "" {
			if *n, err = strconv.Atoi(v); err != nil || *n < 0 {
				return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: %q is no number", header, v))
			}
		}
	}
	if err := l.dir(name, max(1, req.Msg.GetDepth())); err != nil && !errors.Is(err, errPageFull) {
		return nil, err
	}
	return connect.NewResponse(&envd.ListDirResponse{Entries: l.entries}), nil
}

// listing is one ListDir under way.
type listing struct {
	files   *Service
	ctx     context.Context
	skip    int // entries that come before the page
	max     int // entries of the page; 0 is no page
	entries []*envd.EntryInfo
	bytes   int
}

var errPageFull = errors.New("the page is full")

func (l *listing) dir(dir string, depth uint32) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ConnectError(dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if err := l.add(name, e); err != nil {
			return err
		}
		if !e.IsDir() || depth <= 1 {
			continue
		}
		if err := l.dir(name, depth-1); err != nil && !skippable(name, err) {
			return err
		}
	}
	return nil
}

// add lists an entry, unless it belongs to an earlier page.
func (l *listing) add(name string, e fs.DirEntry) error {
	switch {
	case l.skip > 0:
		l.skip--
		return nil
	case l.max > 0 && len(l.entries) == l.max:
		return errPageFull
	}
	st, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone meanwhile
	}
	entry := &envd.EntryInfo{Name: strings.ToValidUTF8(e.Name(), "\uFFFD"), Path: strings.ToValidUTF8(name, "\uFFFD"), Type: fileType(e.Type())}
	if err == nil { // else the folder tells names and nothing more
		entry = l.files.Describe(name, st)
	}
	l.bytes += proto.Size(entry)
	if len(l.entries) == maxEntries || l.bytes > maxListBytes {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("more than %d entries or %d MiB of them: list a smaller part", maxEntries, maxListBytes>>20))
	}
	l.entries = append(l.entries, entry)
	return nil
}

// skippable says whether a listing goes on after an error about a folder below:
// one that is gone meanwhile has nothing in it, one that may not be read shows
// nothing, one whose path is longer than a path can be cannot be named.
func skippable(name string, err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeNotFound, connect.CodePermissionDenied:
		return true
	}
	return len(name) >= settings.MaxPath
}
