package e2bexec

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

const (
	// collectTime bounds the collecting of what an execution left.
	collectTime = time.Minute
	// readers is how many files are read at a time: a server may be far away.
	readers = 6
)

// begin notes what is in the folder before the blocks run.
func (e *execution) begin(ctx context.Context, changes *workdir.Changes) error {
	if err := e.folder(ctx); err != nil {
		return err
	}
	files, all, err := e.list(ctx, changes.Depth())
	changes.Begin(files, all)
	return err
}

// collect adds the files to the result that are new or changed.
func (e *execution) collect(ctx context.Context, changes *workdir.Changes) error {
	ctx, cancel := context.WithTimeoutCause(ctx, collectTime, fmt.Errorf("the files did not come within %v: %w", collectTime, context.DeadlineExceeded))
	defer cancel()
	files, all, err := e.list(ctx, changes.Depth())
	if err != nil {
		return err
	}
	changed, safe := changes.Since(files)
	c, err := workdir.NewCollector(codeexec.OutputSpec{Inline: true})
	if err != nil {
		return err
	}
	if err = e.fetch(ctx, c, changed); err == nil {
		err = context.Cause(ctx)
	}
	e.built.AddFiles(c.Files(), c.Left(), all && safe && c.All())
	return err
}

// list lists the regular files of the folder. all is false if there are too many.
func (e *execution) list(ctx context.Context, depth int) (files []workdir.Seen, all bool, err error) {
	at, err := e.b.sbx.Files().Stat(ctx, e.v.dir)
	var entries []cubby.Entry
	if err == nil && at.IsDir() { // and no link to another one
		entries, err = e.b.sbx.Files().List(ctx, e.v.dir, depth)
	}
	switch cubby.CodeOf(err) {
	case cubby.CodeNotFound, cubby.CodeInvalidArgument:
		return nil, true, nil // the code has removed or replaced the folder
	case cubby.CodeRateLimited, cubby.CodeInternal: // see [cubby.Files.List]
		return nil, false, nil
	}
	if err != nil {
		e.b.doubt(err)
		return nil, false, err
	}
	for _, f := range entries {
		name, ok := strings.CutPrefix(f.Path, e.v.dir+"/")
		others := e.v.dir == cubby.Home && strings.HasPrefix(name, conversationsDir+"/")
		if ok && !others && f.Mode.IsRegular() {
			files = append(files, workdir.Seen{Name: name, Size: f.Size, Stamp: fmt.Sprint(f.ModTime.UnixNano())})
		}
	}
	return files, true, nil
}

// fetch reads files, several at a time, as far as the collector wants them.
func (e *execution) fetch(ctx context.Context, c *workdir.Collector, files []workdir.Seen) error {
	type wanted struct {
		workdir.Seen
		content []byte
		want    int64
		err     error
	}
	var all []*wanted
	for _, f := range files {
		if n, ok := c.Want(f.Name, f.Size); ok {
			all = append(all, &wanted{Seen: f, want: n})
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, readers)
	var wg sync.WaitGroup
	for _, f := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f.content, f.err = e.read(ctx, path.Join(e.v.dir, f.Name), f.want)
		})
	}
	wg.Wait()
	for _, f := range all {
		switch {
		case f.err == nil && int64(len(f.content)) < f.want:
			c.Add(f.Name, int64(len(f.content)), f.content) // it has become shorter
		case f.err == nil:
			c.Add(f.Name, f.Size, f.content)
		case isLost(f.err):
			e.b.doubt(f.err)
			return f.err
		default:
			c.Leave(f.Name, "vanished or changed while it was collected")
		}
	}
	return nil
}

// read reads the first n bytes of a file.
func (e *execution) read(ctx context.Context, name string, n int64) ([]byte, error) {
	body, err := e.b.sbx.Files().Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, n))
}
