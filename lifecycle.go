package cubby

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	pageSize  = 100
	maxPages  = 1000
	maxCursor = 4 << 10 // bytes
	maxLogs   = 1000
)

var errPages = errors.New("the server's pages do not go on")

// ListOptions say which sandboxes to list. The zero value is all of them, newest
// first.
type ListOptions struct {
	// Metadata lists those that have all of these labels.
	Metadata map[string]string
	// States are [StateRunning] and [StatePaused]; none means both.
	States []string
	// Template lists those that were made from this one.
	Template string
	// StartedAfter lists those that started at that time or later.
	StartedAfter time.Time
	// OldestFirst turns the order round.
	OldestFirst bool
	// Limit is how many to list at most; 0 is no limit.
	Limit int
}

// List lists the sandboxes that the client's key can see, a page at a time as
// the loop goes on:
//
//	for info, err := range c.List(ctx, cubby.ListOptions{}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(info.ID, info.State)
//	}
//
// An error is the last element; it fails with [CodeInternal] beyond 100,000
// sandboxes. Sandboxes that come and go in the meantime may be missing.
func (c *Client) List(ctx context.Context, opts ListOptions) iter.Seq2[Info, error] {
	return paged("list sandboxes", opts.Limit, func(size int, cursor string) ([]protocol.ListedSandbox, string, error) {
		return c.page(ctx, opts, size, cursor)
	}, func(box protocol.ListedSandbox) (Info, error) {
		if err := checkID(box.SandboxID); err != nil {
			return Info{}, fmt.Errorf("the server answered a bad sandbox id: %w", err)
		}
		return infoOf(box), nil
	})
}

// paged yields what a server answers in pages, limit elements at most; 0 is no limit.
// fetch gets how many it may ask for and the cursor of the page, and read checks an
// element.
func paged[T, W any](op string, limit int, fetch func(size int, cursor string) ([]W, string, error),
	read func(W) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		left, cursor := limit, ""
		if limit < 0 {
			yield(none, fail(op, CodeInvalidArgument, errors.New("the limit is negative")))
			return
		}
		for range maxPages {
			size := pageSize
			if left > 0 {
				size = min(left, pageSize)
			}
			page, next, err := fetch(size, cursor)
			if err != nil {
				yield(none, fail(op, CodeUnavailable, err))
				return
			}
			for _, one := range page {
				element, err := read(one)
				if err != nil {
					yield(none, fail(op, CodeInternal, err))
					return
				}
				if !yield(element, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if next == "" {
				return
			}
			if next == cursor || len(next) > maxCursor {
				yield(none, fail(op, CodeInternal, errPages))
				return
			}
			cursor = next
		}
		yield(none, fail(op, CodeInternal, fmt.Errorf("there are more than %d pages", maxPages)))
	}
}

// page fetches one page, of size sandboxes at most.
func (c *Client) page(ctx context.Context, opts ListOptions, size int,
	cursor string) (page []protocol.ListedSandbox, next string, err error) {
	query := url.Values{"limit": {strconv.Itoa(size)}}
	if len(opts.States) > 0 {
		query.Set("state", strings.Join(opts.States, ","))
	}
	if opts.Template != "" {
		query.Set("template", opts.Template)
	}
	if !opts.StartedAfter.IsZero() {
		query.Set("startedAfter", opts.StartedAfter.UTC().Format(time.RFC3339Nano))
	}
	if opts.OldestFirst {
		query.Set("order", "asc")
	}
	if cursor != "" {
		query.Set("nextToken", cursor)
	}
	// Older servers have a list that knows of metadata only.
	old := url.Values{}
	if len(opts.Metadata) > 0 {
		filter := url.Values{}
		for k, v := range opts.Metadata {
			filter.Set(url.QueryEscape(k), url.QueryEscape(v))
		}
		query.Set("metadata", filter.Encode())
		old.Set("metadata", filter.Encode())
	}
	err = c.versioned(func(v2 bool) error {
		if v2 {
			next, err = c.list(ctx, "/v2/sandboxes", query, &page)
			return err
		}
		if len(opts.States) > 0 && !slices.Contains(opts.States, StateRunning) {
			return &Error{Code: CodeUnimplemented, Err: errors.New("this server lists only sandboxes that run")}
		}
		_, err = c.list(ctx, "/sandboxes", old, &page)
		page = slices.DeleteFunc(page, func(box protocol.ListedSandbox) bool {
			return opts.Template != "" && box.TemplateID != opts.Template || box.StartedAt.Before(opts.StartedAfter)
		})
		slices.SortFunc(page, func(a, b protocol.ListedSandbox) int {
			if opts.OldestFirst {
				a, b = b, a
			}
			return b.StartedAt.Compare(a.StartedAt)
		})
		return err
	})
	return page, next, err
}

// list fetches a page of a list into page, a pointer to a slice.
func (c *Client) list(ctx context.Context, path string, query url.Values, page any) (next string, err error) {
	ctx, cancel := bounded(ctx, answerTimeout)
	defer cancel()
	req, err := newRequest(ctx, http.MethodGet, c.api, path, query, nil)
	if err != nil {
		return "", err
	}
	c.authorise(req)
	resp, err := c.send(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := readAnswer(ctx, resp.Body)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(b, page); err != nil {
		return "", &Error{Code: CodeInternal, Err: fmt.Errorf("malformed answer: %w", err)}
	}
	return resp.Header.Get("X-Next-Token"), nil
}

// versioned makes a call in its newest form, and in the one before it to a server
// that does not know that: 404 and 405 have changed nothing there.
func (c *Client) versioned(call func(v2 bool) error) error {
	if c.v1.Load() {
		return call(false)
	}
	err := call(true)
	if !unknownCall(err) {
		return err
	}
	switch old := call(false); {
	case old == nil:
		c.v1.Store(true)
		return nil
	case !unknownCall(old):
		return old
	}
	return err // what the newest form says is what there is to say
}

// unknownCall reports whether a server may have answered err because it does not know
// the call.
func unknownCall(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// ofSandbox sends a request of the control plane about the sandbox. One that has
// ended is gone; one that is paused and cannot do what is asked for says so.
func (s *Sandbox) ofSandbox(ctx context.Context, op, method, path string, query url.Values, in, out any) error {
	err := s.client.control(ctx, method, path, query, in, out)
	if err == nil {
		return nil
	}
	if CodeOf(err) == CodeNotFound {
		// E2B's servers answer so, too, for one that is paused.
		if info, failed := s.Info(ctx); failed == nil && info.State == StatePaused {
			return fail(op, CodePaused, errPaused())
		}
	}
	return fail(op, CodeUnavailable, recoded(err, CodeNotFound, CodeSandboxGone))
}

// errPaused is the error of a sandbox that is paused.
func errPaused() *Error {
	return &Error{Code: CodePaused, Err: errors.New("the sandbox is paused"), Hint: "Client.Connect resumes it"}
}

// SetTimeout moves the end of the sandbox's life to d from now, sooner or later
// than it was; d is rounded up to whole seconds. It fails with
// [CodeSandboxGone] when the life is over, with [CodePaused] while the sandbox is
// paused, when no time passes for it, and with [CodeInvalidArgument] when d is not
// positive or longer than the server lets it be.
func (s *Sandbox) SetTimeout(ctx context.Context, d time.Duration) error {
	const op = "set timeout"
	if d <= 0 {
		return &Error{Op: op, Code: CodeInvalidArgument, Err: errors.New("the timeout must be positive"), Hint: "Sandbox.Kill ends a sandbox"}
	}
	return s.ofSandbox(ctx, op, http.MethodPost, "/sandboxes/"+s.id+"/timeout", nil, protocol.SandboxTimeout{Timeout: new(seconds(d))}, nil)
}

// seconds is d in whole ones, rounded up.
func seconds(d time.Duration) int {
	n := d / time.Second
	if d%time.Second > 0 {
		n++
	}
	return int(n)
}

// Usage is what a sandbox used at a moment. Sizes are bytes.
type Usage struct {
	At                                   time.Time
	CPUs                                 int
	CPUPercent                           float64 // of all its processors
	MemoryUsed, MemoryTotal, MemoryCache int64
	DiskUsed, DiskTotal                  int64
}

// Metrics returns what the sandbox used from start to end, oldest first; zero
// times are no bounds. Servers measure every few seconds and forget after some
// time (Cubby: 5 seconds, an hour), so there may be nothing. It fails with
// [CodeSandboxGone] when the sandbox has ended.
func (s *Sandbox) Metrics(ctx context.Context, start, end time.Time) ([]Usage, error) {
	query := url.Values{}
	if !start.IsZero() {
		query.Set("start", strconv.FormatInt(start.Unix(), 10))
	}
	if !end.IsZero() {
		query.Set("end", strconv.FormatInt(end.Unix(), 10))
	}
	var answer []protocol.SandboxMetric
	if err := s.ofSandbox(ctx, "get metrics", http.MethodGet, "/sandboxes/"+s.id+"/metrics", query, nil, &answer); err != nil {
		return nil, err
	}
	out := make([]Usage, len(answer))
	for i, m := range answer {
		out[i] = Usage{
			At: m.Timestamp, CPUs: m.CPUCount, CPUPercent: m.CPUUsedPct, MemoryUsed: m.MemUsed, MemoryTotal: m.MemTotal,
			MemoryCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
		}
	}
	return out, nil
}

// LogEntry is a line of what the server did with a sandbox.
type LogEntry struct {
	At      time.Time
	Level   string // "debug", "info", "warn" or "error"
	Message string
	Fields  map[string]string
}

// Logs returns what the server did with the sandbox since a time (zero: ever),
// oldest first, at most a thousand lines. What code in the sandbox prints is not in
// it. It fails with [CodeSandboxGone] when the sandbox has ended and the server
// has forgotten it.
func (s *Sandbox) Logs(ctx context.Context, since time.Time) ([]LogEntry, error) {
	log, err := s.client.Logs(ctx, s.id, since)
	return log, recoded(err, CodeNotFound, CodeSandboxGone)
}

// Logs is [Sandbox.Logs] of the sandbox of that id, which may have ended: a Cubby
// server knows its log for some time after, and for thirty days when and why it
// ended. It fails with [CodeNotFound] when the server knows none of that id.
//
// Nothing of a line is to be trusted further than the server is: who prints it on
// a terminal takes out what that would obey.
func (c *Client) Logs(ctx context.Context, id string, since time.Time) ([]LogEntry, error) {
	const op = "get logs"
	if err := checkID(id); err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	query := url.Values{"limit": {strconv.Itoa(maxLogs)}}
	if !since.IsZero() {
		query.Set("cursor", strconv.FormatInt(since.UnixMilli(), 10))
	}
	var answer protocol.SandboxLogsV2
	if err := c.control(ctx, http.MethodGet, "/v2/sandboxes/"+id+"/logs", query, nil, &answer); err != nil {
		return nil, fail(op, CodeUnavailable, err)
	}
	out := make([]LogEntry, 0, len(answer.Logs))
	for _, l := range answer.Logs {
		out = append(out, LogEntry{At: l.Timestamp, Level: l.Level, Message: l.Message, Fields: l.Fields})
	}
	return out, nil
}

// Kill ends the sandbox of that id and everything in it. It fails with
// [CodeNotFound] when there is none; the error then says why it ended, if the
// server still knows. [Sandbox.Kill] is for who wants it gone, however it went.
func (c *Client) Kill(ctx context.Context, id string) error {
	const op = "kill sandbox"
	if err := checkID(id); err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	if err := c.control(ctx, http.MethodDelete, "/sandboxes/"+id, nil, nil, nil); err != nil {
		return fail(op, CodeUnavailable, err)
	}
	c.log.Info("sandbox ended", "sandbox_id", id)
	return nil
}
