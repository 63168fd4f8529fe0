package posixws

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// Folder is a folder of a machine that belongs to no workspace: where code blocks run.
type Folder struct {
	files files
	ws    codeexec.Workspace
}

// NewFolder returns the folder at an absolute path.
func NewFolder(m Machine, path string) Folder {
	return Folder{files{&Engine{m: m, cfg: Config{FileTimeout: DefaultFileTimeout}}}, codeexec.Workspace{Path: path}}
}

// List lists its regular files, depth levels deep; a folder that is not there has
// none. all is false if they are too many.
func (d Folder) List(ctx context.Context, depth int) (seen []workdir.Seen, all bool, err error) {
	out, said, err := d.files.e.run(ctx, script{text: listOwn, args: []string{d.ws.Path, strconv.Itoa(depth)}})
	switch {
	case said == "find":
		return nil, false, errFind()
	case errors.Is(err, codeexec.ErrWorkspaceGone):
		return nil, true, nil
	case errors.Is(err, errAnswerTooLong):
		return nil, false, nil
	case err != nil && (!errors.Is(err, errScriptFailed) || len(out) == 0):
		return nil, false, err
	}
	// A find that could not read a folder fails in the end; what it found counts.
	seen, all = parseOwn(out)
	return seen, all, nil
}

// parseOwn reads what the script listOwn prints. The machine may have written
// anything.
func parseOwn(out []byte) (seen []workdir.Seen, all bool) {
	for len(out) > 0 {
		line, rest, whole := bytes.Cut(out, []byte{0})
		out = rest
		parts := strings.SplitN(string(line), " ", 3)
		if !whole || len(parts) != 3 || len(seen) == workdir.MaxEntries {
			return seen, false
		}
		size, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || size < 0 {
			return seen, false
		}
		seen = append(seen, workdir.Seen{Name: parts[2], Size: size, Stamp: parts[1]})
	}
	return seen, true
}

// Fetch gives files of a listing to a collector.
func (d Folder) Fetch(ctx context.Context, c *workdir.Collector, seen []workdir.Seen) error {
	entries := make([]entry, len(seen))
	for i, s := range seen {
		entries[i] = entry{name: s.Name, real: s.Name, size: s.Size}
	}
	return d.files.fetch(ctx, d.ws, c, entries)
}
