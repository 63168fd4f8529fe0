package cubby

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Disk is what the team's paused sandboxes and snapshots take of a Cubby server's disk.
type Disk struct {
	Paused, Snapshots Held
	// All is what those of all teams take; nil where that is not the caller's to know, as
	// on a server with keys.
	All *DiskUsage
}

// Held is a number of paused sandboxes or snapshots, and the bytes that they take on the
// disk; what several share counts for each.
type Held struct {
	Count int
	Bytes int64
}

// DiskUsage is what the paused sandboxes and snapshots of a server take, in bytes.
type DiskUsage struct {
	Images   int64 // what several share counts once
	Reserved int64 // for those that are being written
	Damaged  int64 // were set apart, and are of no use but to find out why
	Free     int64 // that they may take still
	Budget   int64 // the most that they may take; 0: what the file system has
}

// Disk asks what is on the server's disk. It fails with [CodeUnimplemented] on servers
// other than Cubby's.
func (c *Client) Disk(ctx context.Context) (*Disk, error) {
	const op = "get disk usage"
	var answer protocol.Disk
	if err := c.control(ctx, http.MethodGet, "/cubby/disk", nil, nil, &answer); err != nil {
		return nil, fail(op, CodeUnavailable, recoded(err, CodeNotFound, CodeUnimplemented))
	}
	d := &Disk{Paused: Held(answer.Paused), Snapshots: Held(answer.Snapshots)}
	if answer.All != nil {
		all := DiskUsage(*answer.All)
		d.All = &all
	}
	return d, nil
}

// PruneOptions say what [Client.Prune] removes.
type PruneOptions struct {
	// Snapshots has the team's snapshots removed that have no name, and were made longer
	// ago than OlderThan, in whole seconds and at most ten years. Without it only what
	// the server can make again is.
	Snapshots bool
	OlderThan time.Duration
}

// Prune removes from the server's disk what is not needed, and returns what went; paused
// sandboxes and named snapshots never do. After an error some of it may have gone. It
// fails with [CodeUnimplemented] on servers other than Cubby's.
func (c *Client) Prune(ctx context.Context, opts PruneOptions) (Held, error) {
	const op = "prune disk"
	query := url.Values{"all": {strconv.FormatBool(opts.Snapshots)}, "age": {strconv.Itoa(seconds(opts.OlderThan))}}
	ctx, cancel := bounded(ctx, memoryTimeout)
	defer cancel()
	var answer protocol.Held
	if err := c.control(ctx, http.MethodDelete, "/cubby/disk", query, nil, &answer); err != nil {
		return Held{}, fail(op, CodeUnavailable, recoded(err, CodeNotFound, CodeUnimplemented))
	}
	return Held(answer), nil
}
