package cubby

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
)

// WatchOptions say what to watch.
type WatchOptions struct {
	// Recursive watches everything below the directory, too, also what is made
	// later.
	Recursive bool
	// Entries describes what was made, written or changed in [Event.Entry], as
	// far as it is still there.
	Entries bool
}

// EventType says what happened to a file.
type EventType string

// The types. What gets another name is renamed under the old one, and created
// under the new one.
const (
	EventCreate EventType = "create"
	EventWrite  EventType = "write"
	EventRemove EventType = "remove"
	EventRename EventType = "rename"
	EventChmod  EventType = "chmod"
)

// Event is something that happened in a directory.
type Event struct {
	// Name is the file, relative to the directory: hostile text.
	Name  string
	Type  EventType
	Entry *Entry // see WatchOptions
}

// Watch is a directory that is being watched. What happens is kept in the
// sandbox until it is asked for, up to a bound.
type Watch struct {
	st   *stream
	over bool // its context was, when Next failed
}

// Watch begins to watch a directory: what happens once it has returned is
// reported. The watch ends with ctx or [Watch.Close], which the caller must see
// to. It fails with [CodeNotFound], with [CodeInvalidArgument] when name is no
// directory, and with [CodeRateLimited] when the sandbox has too many watches.
func (f Files) Watch(ctx context.Context, name string, opts WatchOptions) (*Watch, error) {
	const op = "watch"
	req := struct {
		Path         string `json:"path"`
		Recursive    bool   `json:"recursive,omitempty"`
		IncludeEntry bool   `json:"includeEntry,omitempty"`
	}{inHome(name), opts.Recursive, opts.Entries}
	st, err := f.open(ctx, "/filesystem.Filesystem/WatchDir", req, CodeRateLimited)
	if err != nil {
		return nil, f.fail(ctx, op, err)
	}
	for {
		var m wireWatch
		err := st.receive(&m)
		if errors.Is(err, io.EOF) {
			err = malformed(errors.New("the watch ended before it began"))
		}
		if err != nil {
			st.close()
			return nil, f.fail(ctx, op, err)
		}
		if m.Start != nil {
			return &Watch{st: st}, nil
		}
	}
}

// wireWatch is a message of WatchDir in the JSON form of proto3.
type wireWatch struct {
	Start      *struct{} `json:"start"`
	Filesystem *struct {
		Name  string     `json:"name"`
		Type  string     `json:"type"`
		Entry *wireEntry `json:"entry"`
	} `json:"filesystem"`
}

// Next waits for the next event. Only one goroutine may wait at a time. It fails
// with [CodeCanceled] when the watch was closed or its context is over, with
// [CodeRateLimited] when more happened than was asked for and some of it is lost,
// and with [CodeSandboxGone]; there is no event after an error.
func (w *Watch) Next() (Event, error) {
	const op = "watch"
	for {
		var m wireWatch
		err := w.st.receive(&m)
		if errors.Is(err, io.EOF) {
			err = malformed(errors.New("the watch ended by itself"))
		}
		if err != nil {
			w.over = w.st.ctx.Err() != nil
			w.st.close()
			return Event{}, fail(op, CodeUnavailable, err)
		}
		if m.Filesystem == nil {
			continue
		}
		e := Event{Name: m.Filesystem.Name}
		e.Type = EventType(strings.ToLower(strings.TrimPrefix(m.Filesystem.Type, "EVENT_TYPE_")))
		if m.Filesystem.Entry != nil {
			entry, err := m.Filesystem.Entry.entry()
			if err != nil {
				w.st.close()
				return Event{}, fail(op, CodeInternal, err)
			}
			e.Entry = &entry
		}
		return e, nil
	}
}

// Events calls [Watch.Next] for a loop, until the watch is closed or its context
// is over. Another error is the last element.
func (w *Watch) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, err := w.Next()
			if w.over {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the watch, and a Next that waits. It can be called again.
func (w *Watch) Close() error {
	w.st.close()
	return nil
}
