package local

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// clockTick is how far apart two writes to a file must be for their times to
// differ: the clock of file systems goes by the kernel's.
const clockTick = 20 * time.Millisecond

// begin notes what is there before the blocks run.
func (p *place) begin(ctx context.Context, changes *workdir.Changes) error {
	if changes == nil {
		return nil
	}
	files, newest, all, err := p.list(ctx)
	if err != nil {
		return err
	}
	changes.Begin(files, all)
	// What the code writes now is to have another time.
	if wait := clockTick - time.Since(newest); wait > 0 {
		time.Sleep(min(wait, clockTick))
	}
	return nil
}

// collected returns the files that are new or changed, but for those of out,
// which come back anyway, and those of the blocks.
func (p *place) collected(ctx context.Context, changes *workdir.Changes) (files []codeexec.File,
	left []codeexec.LeftFile, all bool, err error) {
	if changes == nil {
		return nil, nil, true, nil
	}
	now, _, all, err := p.list(ctx)
	if err != nil {
		return nil, nil, all, err
	}
	changed, safe := changes.Since(slices.DeleteFunc(now, func(f workdir.Seen) bool {
		return strings.HasPrefix(f.Name, codeexec.DirOut+"/") || slices.Contains(p.code, f.Name)
	}))
	c, err := workdir.NewCollector(codeexec.OutputSpec{Inline: true})
	if err != nil {
		return nil, nil, all, err
	}
	t := tree{root: p.root, path: p.dir}
	there := make([]found, 0, len(changed))
	for _, f := range changed {
		if info, err := p.root.Lstat(f.Name); err == nil && info.Mode().IsRegular() {
			there = append(there, found{f.Name, f.Name, info})
		}
	}
	err = t.collect(ctx, c, there)
	return c.Files(), c.Left(), all && safe && c.All(), err
}

// list lists the folder's regular files, and when the newest was written to.
func (p *place) list(ctx context.Context) (files []workdir.Seen, newest time.Time, all bool, err error) {
	all = true
	t := tree{root: p.root, path: p.dir}
	seen, err := t.find(ctx, workdir.Everything(), func(name, _ string) { all = all && name != "." })
	for _, f := range seen {
		if f.real != f.name {
			continue // a link
		}
		files = append(files, workdir.Seen{Name: f.name, Size: f.info.Size(), Stamp: fmt.Sprint(f.info.ModTime().UnixNano())})
		if at := f.info.ModTime(); at.After(newest) {
			newest = at
		}
	}
	return files, newest, all, err
}
