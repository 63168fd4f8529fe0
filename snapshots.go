package cubby

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Snapshot is a sandbox's memory and files at a moment, or its files alone. Sandboxes
// are made of it by [WithTemplate] with its ID, and put back to it by
// [Sandbox.Rollback]. It lasts until [Client.DeleteSnapshot], and belongs to the team of
// the key; a private Cubby's end with the program.
type Snapshot struct {
	// ID is what other calls take: a name with its tag, or an id that the server made.
	ID string
	// Names are those that it has, without tags. A name that is given to a newer
	// snapshot is taken from the older one, which keeps an id.
	Names []string
	// The rest only Cubby servers say: the sandbox that it was made of, whether it has no
	// memory, the bytes that it takes on the server's disk, and when it was made.
	SandboxID string
	FilesOnly bool
	Size      int64
	CreatedAt time.Time
}

// SnapshotOption modifies [Sandbox.Snapshot].
type SnapshotOption interface{ applySnapshot(*protocol.NewSnapshot) }

type snapshotOption func(*protocol.NewSnapshot)

func (f snapshotOption) applySnapshot(r *protocol.NewSnapshot) { f(r) }

// WithName names a snapshot: lower-case letters, digits, "-" and "_", and where a colon
// follows, a tag. Without a tag it is "default". A name that another snapshot of the team
// has is this one's from then on.
func WithName(name string) SnapshotOption {
	return snapshotOption(func(r *protocol.NewSnapshot) { r.Name = name })
}

// Snapshot makes a snapshot of the sandbox, with its memory, or with [WithFilesOnly]
// without it. One that runs stands still while it is written, some seconds for each
// gigabyte of memory and files, and goes on with its connections; one that is paused
// stays so.
//
// It fails with [CodeInvalidArgument] for a bad name, [CodeNoSpace] or [CodeUnavailable]
// where the server has no room for it, [CodeSandboxGone] when the sandbox has ended, and
// [CodeUnimplemented] where the server cannot make one: of files only, on a server
// other than Cubby's.
func (s *Sandbox) Snapshot(ctx context.Context, opts ...SnapshotOption) (Snapshot, error) {
	const op = "make snapshot"
	var req protocol.NewSnapshot
	for _, o := range opts {
		o.applySnapshot(&req)
	}
	if req.FilesOnly && !s.cubby {
		return Snapshot{}, onlyCubby(op, "a snapshot of files only", "leave WithFilesOnly out")
	}
	ctx, cancel := bounded(ctx, memoryTimeout)
	defer cancel()
	var answer protocol.Snapshot
	if err := s.ofSandbox(ctx, op, http.MethodPost, "/sandboxes/"+s.id+"/snapshots", nil, &req, &answer); err != nil {
		return Snapshot{}, err
	}
	made, err := snapshotOf(answer)
	if err != nil {
		return Snapshot{}, fail(op, CodeInternal, err)
	}
	s.client.log.Info("snapshot made", "sandbox_id", s.id, "snapshot", made.ID)
	return made, nil
}

// Rollback puts the sandbox, which runs or is paused, back to a snapshot of the team's:
// it runs, has the snapshot's memory and files, or its files alone if it has no memory,
// and keeps its id, its rules and its end. Everything that it was before is lost, and
// what was under way is cut off; [Info] counts it in Instance.
//
// It fails with [CodeNotFound] where there is no such snapshot, [CodeInvalidArgument]
// when that is of a sandbox with another size of disk, [CodeIncompatible] when this
// server cannot restore it any more, and [CodeUnimplemented] on servers other than
// Cubby's. After these errors the sandbox is as it was; a restore that breaks off later
// ends it, and the error says so.
func (s *Sandbox) Rollback(ctx context.Context, snapshotID string) error {
	const op = "roll back sandbox"
	if err := checkSnapshot(snapshotID); err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	if !s.cubby {
		return onlyCubby(op, "a rollback", "make another sandbox of the snapshot: WithTemplate")
	}
	ctx, cancel := bounded(ctx, memoryTimeout)
	defer cancel()
	err := s.client.control(ctx, http.MethodPost, "/sandboxes/"+s.id+"/rollback", nil, protocol.Rollback{SnapshotID: snapshotID}, nil)
	if err == nil {
		return nil
	}
	if CodeOf(err) == CodeNotFound {
		// It is the snapshot that is not there, or the sandbox.
		if _, gone := s.Info(ctx); CodeOf(gone) == CodeNotFound {
			err = recoded(err, CodeNotFound, CodeSandboxGone)
		}
	}
	return fail(op, CodeUnavailable, err)
}

// SnapshotListOptions say which snapshots to list. The zero value is all of them, newest
// first.
type SnapshotListOptions struct {
	// SandboxID lists those that were made of this sandbox.
	SandboxID string
	// Name lists those of that name, with any tag unless it has one.
	Name string
	// Limit is how many to list at most; 0 is no limit.
	Limit int
}

// Snapshots lists the team's snapshots as [Client.List] does sandboxes: a page at a
// time, and an error is the last element.
func (c *Client) Snapshots(ctx context.Context, opts SnapshotListOptions) iter.Seq2[Snapshot, error] {
	return paged("list snapshots", opts.Limit, func(left int, cursor string) (page []protocol.Snapshot, next string, err error) {
		query := url.Values{"limit": {strconv.Itoa(left)}}
		if opts.SandboxID != "" {
			query.Set("sandboxID", opts.SandboxID)
		}
		if opts.Name != "" {
			query.Set("name", opts.Name)
		}
		if cursor != "" {
			query.Set("nextToken", cursor)
		}
		next, err = c.list(ctx, "/snapshots", query, &page)
		return page, next, err
	}, snapshotOf)
}

// DeleteSnapshot deletes a snapshot of the team's, by its ID; on a Cubby server nothing of
// it is on the disk any more when it returns. Sandboxes that were made of it go on. It
// fails with [CodeNotFound] where there is none.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	const op = "delete snapshot"
	if err := checkSnapshot(snapshotID); err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	if err := c.control(ctx, http.MethodDelete, "/templates/"+url.PathEscape(snapshotID), nil, nil, nil); err != nil {
		return fail(op, CodeUnavailable, err)
	}
	c.log.Info("snapshot deleted", "snapshot", snapshotID)
	return nil
}

// snapshotOf is what a server says of a snapshot, whose id is checked: it goes into paths.
func snapshotOf(a protocol.Snapshot) (Snapshot, error) {
	if err := checkSnapshot(a.SnapshotID); err != nil {
		return Snapshot{}, fmt.Errorf("the server answered a bad snapshot id: %w", err)
	}
	return Snapshot{
		ID: a.SnapshotID, Names: a.Names, SandboxID: a.SandboxID, FilesOnly: a.FilesOnly, Size: a.Size, CreatedAt: a.CreatedAt,
	}, nil
}

// maxSnapshotID is in bytes: a namespace, a name and a tag of 128 each have room.
const maxSnapshotID = 512

var errBadSnapshot = errors.New("a snapshot's id is 1 to 512 characters of ASCII, without spaces")

func checkSnapshot(id string) error {
	if id == "" || len(id) > maxSnapshotID || id == "." || id == ".." {
		return errBadSnapshot
	}
	for _, r := range id {
		if r <= ' ' || r > '~' {
			return errBadSnapshot
		}
	}
	return nil
}

// onlyCubby is the error for what no other server knows.
func onlyCubby(op, what, hint string) error {
	return &Error{Op: op, Code: CodeUnimplemented, Err: fmt.Errorf("%s is possible on a Cubby server only", what), Hint: hint}
}
