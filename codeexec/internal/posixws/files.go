package posixws

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

type files struct{ e *Engine }

// PutFiles implements [codeexec.WorkspaceFS].
func (f files) PutFiles(ctx context.Context, ws codeexec.Workspace, put []codeexec.PutFile) error {
	const op = "put files"
	if err := f.e.check(ws); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	if len(put) == 0 {
		return nil
	}
	var p workdir.Packer
	defer p.Close()
	for _, file := range put {
		if err := p.AddFile(file.Path, file.Content, file.Mode); err != nil {
			return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
		}
	}
	return execerr.Wrap(op, cubby.CodeInternal, f.unpack(ctx, ws, &p))
}

// restage sends what was packed, also where a part of it was staged read-only
// before, below the paths to.
func (f files) restage(ctx context.Context, ws codeexec.Workspace, p *workdir.Packer, to ...string) error {
	err := f.unpack(ctx, ws, p)
	if c := cubby.CodeOf(err); c != cubby.CodePermissionDenied && c != cubby.CodeConflict {
		return err
	}
	args := []string{ws.Path}
	for _, t := range to {
		args = append(args, "./"+t)
	}
	if _, _, failed := f.e.run(ctx, script{text: unprotect, args: args}); failed != nil {
		return errors.Join(err, failed)
	}
	return f.unpack(ctx, ws, p)
}

// unpack extracts what was packed into a workspace, by one call of Machine.Unpack.
func (f files) unpack(ctx context.Context, ws codeexec.Workspace, p *workdir.Packer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.e.cfg.FileTimeout,
		fmt.Errorf("the files were not taken within %v: %w", f.e.cfg.FileTimeout, context.DeadlineExceeded))
	defer cancel()
	stream := p.Reader()
	watched := &watchedReader{r: stream}
	err := f.e.m.Unpack(ctx, ws.Path, watched)
	stream.Close()
	switch {
	case err == nil:
		return watched.err
	case watched.err != nil:
		return watched.err // the host's own file is what failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	// Why it failed is the workspace's: it is gone, its disk is full, a name is
	// too long there.
	if e := f.e.errIfGone(ctx, ws); e != nil {
		return e
	}
	return markLost(err, false)
}

// watchedReader remembers the error with which reading ended.
type watchedReader struct {
	r   io.Reader
	err error
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		w.err = err
	}
	return n, err
}

// errIfGone returns an error if the workspace's folder is not there.
func (e *Engine) errIfGone(ctx context.Context, ws codeexec.Workspace) error {
	_, said, err := e.run(ctx, script{text: `nonce=$1; [ -d "$2" ] || { printf '%s gone\n' "$nonce" >&2; exit 125; }`, args: []string{ws.Path}})
	if errors.Is(err, codeexec.ErrWorkspaceGone) || errors.Is(err, codeexec.ErrWorkspaceStale) || said == "gone" {
		return err
	}
	return nil
}

// StageDirectory implements [codeexec.WorkspaceFS]. It copies: nothing of this
// machine can be linked or mounted there.
func (f files) StageDirectory(ctx context.Context, ws codeexec.Workspace, src, to string, opt codeexec.StageOptions) error {
	const op = "stage directory"
	if err := f.e.check(ws); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	var p workdir.Packer
	defer p.Close()
	if err := p.AddHost(src, to, opt.ReadOnly); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	return execerr.Wrap(op, cubby.CodeInternal, f.restage(ctx, ws, &p, path.Clean(to)))
}

// StageInputs implements [codeexec.WorkspaceFS]: one call for all that comes from
// outside, and two where something is in the workspace already.
func (f files) StageInputs(ctx context.Context, ws codeexec.Workspace, specs []codeexec.InputSpec) error {
	const op = "stage inputs"
	e := f.e
	if err := e.check(ws); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	inputs := make([]workdir.Input, len(specs))
	for i, spec := range specs {
		in, err := workdir.ParseInput(spec)
		if err != nil {
			return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
		}
		inputs[i] = in
	}
	if len(inputs) == 0 {
		return nil
	}
	rec := e.registry.Record(ws)
	var p workdir.Packer
	defer p.Close()
	var (
		args   []string
		places []string // of what comes from outside
		moved  []workdir.Input
	)
	now := time.Now()
	for _, in := range inputs {
		var (
			err     error
			version *int
		)
		switch in.Scheme {
		case workdir.SchemeArtifact:
			version, err = p.AddArtifact(ctx, rec, in)
			places = append(places, in.To)
		case workdir.SchemeHost:
			if err = workdir.CheckHostBase(e.cfg.HostBase, in.Path); err == nil {
				err = p.AddHost(in.Path, in.To, in.ReadOnly)
			}
			places = append(places, in.To)
		default:
			mode, access := "copy", "rw"
			if in.ReadOnly {
				access = "ro"
			} else if in.Link {
				mode = "link"
			}
			args = append(args, mode, access, "./"+in.Path, "./"+in.To)
			moved = append(moved, in)
		}
		if err != nil {
			return execerr.Wrap(op, cubby.CodeInvalidArgument, fmt.Errorf("input %.200q: %w", in.From, err))
		}
		rec.AddInput(in, version, now)
	}
	if len(moved) < len(inputs) {
		if len(moved) == 0 {
			// The record travels along.
			if err := p.AddFile(workdir.RecordFile, rec.JSON(), 0); err != nil {
				return execerr.Wrap(op, cubby.CodeInternal, err)
			}
		}
		if err := f.restage(ctx, ws, &p, places...); err != nil {
			return execerr.Wrap(op, cubby.CodeInternal, err)
		}
	}
	if len(moved) == 0 {
		e.registry.SetRecord(ws, rec)
		return nil
	}
	if err := f.copyOrLink(ctx, ws, args, moved); err != nil {
		return execerr.Wrap(op, cubby.CodeInternal, err)
	}
	return execerr.Wrap(op, cubby.CodeInternal, e.saveRecord(ctx, ws, rec))
}

// copyOrLink brings inputs to their places that are in the workspace already.
func (f files) copyOrLink(ctx context.Context, ws codeexec.Workspace, args []string, inputs []workdir.Input) error {
	_, said, err := f.e.run(ctx, script{text: place, args: append([]string{ws.Path}, args...)})
	if err != nil || said == "" {
		return err
	}
	word, number, _ := strings.Cut(said, " ")
	from := "an input"
	if n, bad := strconv.Atoi(number); bad == nil && n >= 0 && n < len(inputs) {
		from = fmt.Sprintf("input %.200q", inputs[n].From)
	}
	switch word {
	case "missing":
		return &cubby.Error{Code: cubby.CodeNotFound, Err: fmt.Errorf("%s is not in the workspace: %w", from, fs.ErrNotExist)}
	case "outside":
		return fmt.Errorf("%w: %s: a link leads outside", codeexec.ErrBadPath, from)
	case "same":
		return fmt.Errorf("%w: %s: it would be copied into itself", codeexec.ErrBadPath, from)
	}
	return fmt.Errorf("%s could not be copied", from)
}

// saveRecord keeps a workspace's record in the registry and writes it into the
// workspace.
func (e *Engine) saveRecord(ctx context.Context, ws codeexec.Workspace, rec *workdir.Record) error {
	e.registry.SetRecord(ws, rec)
	_, _, err := e.run(ctx, script{
		text: `nonce=$1; cd -P -- "$2" 2>/dev/null || { printf '%s gone\n' "$nonce" >&2; exit 125; }
new=.metadata.$$.tmp; trap 'rm -f -- "$new"' EXIT
cat >"$new" && mv -f -- "$new" metadata.json`,
		args: []string{ws.Path}, stdin: bytes.NewReader(rec.JSON()),
	})
	return err
}

// Collect implements [codeexec.WorkspaceFS].
func (f files) Collect(ctx context.Context, ws codeexec.Workspace, patterns []string) ([]codeexec.File, error) {
	const op = "collect"
	c, err := f.collect(ctx, ws, codeexec.OutputSpec{Globs: patterns, Inline: true})
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	return c.Files(), nil
}

// CollectOutputs implements [codeexec.WorkspaceFS].
func (f files) CollectOutputs(ctx context.Context, ws codeexec.Workspace, spec codeexec.OutputSpec) (codeexec.OutputManifest, error) {
	const op = "collect outputs"
	if _, ok := artifactctx.Service(ctx); spec.Save && !ok {
		return codeexec.OutputManifest{}, execerr.Wrap(op, cubby.CodeInvalidArgument, codeexec.ErrNoArtifacts)
	}
	c, err := f.collect(ctx, ws, spec)
	if err != nil {
		return codeexec.OutputManifest{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	m, err := c.Manifest(ctx)
	if err == nil && spec.Save {
		rec := f.e.registry.Record(ws)
		rec.AddOutput(spec, m, time.Now())
		err = f.e.saveRecord(ctx, ws, rec)
	}
	return m, execerr.Wrap(op, cubby.CodeInternal, err)
}

// entry is a file of a listing.
type entry struct {
	name string // below the workspace
	real string // the path without links, below the workspace
	size int64
	want int64
}

func (f files) collect(ctx context.Context, ws codeexec.Workspace, spec codeexec.OutputSpec) (*workdir.Collector, error) {
	if err := f.e.check(ws); err != nil {
		return nil, err
	}
	patterns, err := workdir.ParsePatterns(spec.Globs)
	if err != nil {
		return nil, err
	}
	c, err := workdir.NewCollector(spec)
	if err != nil {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	if len(spec.Globs) == 0 {
		return c, nil
	}
	found, err := f.list(ctx, ws, patterns, c)
	if err != nil {
		return nil, err
	}
	if err := f.fetch(ctx, ws, c, found); err != nil {
		return nil, err
	}
	return c, nil
}

// fetch collects files by at most two scripts: one sends all whole files as an archive, the
// other the beginnings of those that are too large.
func (f files) fetch(ctx context.Context, ws codeexec.Workspace, c *workdir.Collector, found []entry) error {
	var whole, begun []entry
	seen := map[string]bool{}
	for _, e := range found {
		if seen[e.real] {
			continue
		}
		seen[e.real] = true
		want, ok := c.Want(e.name, e.size)
		if !ok {
			continue
		}
		if e.want = want; want < e.size {
			begun = append(begun, e)
		} else {
			whole = append(whole, e)
		}
	}
	if err := f.fetchWhole(ctx, ws, c, whole); err != nil {
		return err
	}
	if err := f.fetchBeginnings(ctx, ws, c, begun); err != nil {
		return err
	}
	c.Sort()
	return nil
}

// list finds the files that match, sorted by name, with links last: a file that is also
// reached by a link is collected under its own name.
func (f files) list(ctx context.Context, ws codeexec.Workspace, patterns workdir.Patterns, c *workdir.Collector) ([]entry, error) {
	bases := patterns.Bases()
	args := []string{ws.Path}
	for _, b := range bases {
		args = append(args, "./"+b)
	}
	out, said, err := f.e.run(ctx, script{text: list, args: args})
	switch {
	case said == "find":
		return nil, errFind()
	case err != nil && !errors.Is(err, errScriptFailed):
		return nil, err
	case err != nil && len(out) == 0:
		return nil, err
	}
	// A find that could not read a folder fails in the end; what it found counts.
	return parseListing(out, bases, patterns, c)
}

func errFind() error {
	return &cubby.Error{
		Code: cubby.CodeUnimplemented, Err: errors.New("find is missing there or has no -printf"),
		Hint: "use an image with GNU findutils, such as python:3-slim",
	}
}

// parseListing reads what the script list prints. The machine may have written
// anything.
func parseListing(out []byte, bases []string, patterns workdir.Patterns, c *workdir.Collector) ([]entry, error) {
	root, rest, ok := bytes.Cut(out, []byte{0})
	if !ok {
		return nil, fmt.Errorf("%w: a listing that cannot be read", errScriptFailed)
	}
	var own, links []entry
	for n := 0; len(rest) > 0; n++ {
		var head, real []byte
		var ok1, ok2 bool
		head, rest, ok1 = bytes.Cut(rest, []byte{0})
		real, rest, ok2 = bytes.Cut(rest, []byte{0})
		if !ok1 || !ok2 || n > workdir.MaxEntries {
			c.Leave(".", fmt.Sprintf("the listing was cut after %d entries", n))
			break
		}
		e, kind, ok := parseEntry(string(head), string(real), string(root), bases)
		if !ok || !patterns.Match(e.name) {
			continue
		}
		if err := workdir.CheckName(e.name); err != nil {
			c.Leave(e.name, err.Error())
			continue
		}
		switch {
		case kind == "X":
			c.Leave(e.name, "is a symbolic link out of the workspace or to no file")
		case kind != "f" && kind != "F":
			c.Leave(e.name, kindName(kind))
		case workdir.CheckName(e.real) != nil:
			c.Leave(e.name, "leads to a name that is not safe")
		case kind == "f":
			own = append(own, e)
		default:
			links = append(links, e)
		}
	}
	byName := func(a, b entry) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(own, byName)
	slices.SortFunc(links, byName)
	return append(own, links...), nil
}

func kindName(kind string) string {
	switch kind {
	case "b", "c":
		return "is a device"
	case "p":
		return "is a pipe"
	case "s":
		return "is a socket"
	}
	return "is no ordinary file"
}

// parseEntry reads "2 f 123 a/b" and the file's real path.
func parseEntry(head, real, root string, bases []string) (e entry, kind string, ok bool) {
	parts := strings.SplitN(head, " ", 4)
	if len(parts) != 4 {
		return entry{}, "", false
	}
	n, err := strconv.Atoi(parts[0])
	if err != nil || n < 0 || n >= len(bases) {
		return entry{}, "", false
	}
	size, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || size < 0 {
		return entry{}, "", false
	}
	e = entry{name: path.Join(bases[n], parts[3]), size: size}
	e.real, _ = strings.CutPrefix(real, root+"/")
	return e, parts[1], true
}

// fetchWhole collects files from an archive that the machine sends, which may hold
// anything.
func (f files) fetchWhole(ctx context.Context, ws codeexec.Workspace, c *workdir.Collector, wanted []entry) error {
	if len(wanted) == 0 {
		return nil
	}
	byReal := make(map[string]entry, len(wanted))
	var (
		names strings.Builder
		most  int64 = 1 << 20
	)
	for _, e := range wanted {
		byReal[e.real] = e
		names.WriteString("./" + e.real + "\x00")
		most += e.want + 4096
	}
	pr, pw := io.Pipe()
	type end struct {
		said string
		err  error
	}
	ran := make(chan end, 1)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, said, err := f.e.run(runCtx, script{
			text: pack, args: []string{ws.Path}, stdin: strings.NewReader(names.String()), out: lenientWriter{pw},
		})
		pw.Close()
		ran <- end{said, err}
	}()
	// Files that grew since they were listed are more than was asked for.
	tr := tar.NewReader(io.LimitReader(pr, 2*most))
	for len(byReal) > 0 {
		h, err := tr.Next()
		if err != nil {
			break // why is what the program's end tells
		}
		e, ok := byReal[strings.TrimPrefix(h.Name, "./")]
		if !ok {
			continue
		}
		if h.Typeflag != tar.TypeReg {
			delete(byReal, e.real)
			c.Leave(e.name, workdir.TypeName(h.Typeflag)+" took its place while it was collected")
			continue
		}
		if err := c.Read(e.name, h.Size, min(e.want, h.Size), tr); err != nil {
			break
		}
		delete(byReal, e.real)
	}
	// Nothing more is wanted, and the rest must not hold the program up.
	_, _ = io.Copy(io.Discard, io.LimitReader(pr, most))
	pr.Close()
	cancel()
	switch e := <-ran; {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(byReal) == 0:
	case e.said == "tar":
		return &cubby.Error{Code: cubby.CodeUnimplemented, Err: errors.New("tar is missing there"), Hint: "use an image with GNU tar, such as python:3-slim"}
	case e.err != nil && !errors.Is(e.err, errScriptFailed) && !errors.Is(e.err, context.Canceled):
		return e.err
	}
	for _, e := range wanted {
		if _, missing := byReal[e.real]; missing {
			c.Leave(e.name, "vanished or changed while it was collected")
		}
	}
	return nil
}

// lenientWriter takes everything and reports no error, also when nobody reads any
// more: a machine's writers must not fail.
type lenientWriter struct{ w io.Writer }

func (s lenientWriter) Write(p []byte) (int, error) {
	_, _ = s.w.Write(p)
	return len(p), nil
}

// fetchBeginnings collects the beginnings of files.
func (f files) fetchBeginnings(ctx context.Context, ws codeexec.Workspace, c *workdir.Collector, wanted []entry) error {
	if len(wanted) == 0 {
		return nil
	}
	var (
		names strings.Builder
		most  int64
	)
	for _, e := range wanted {
		fmt.Fprintf(&names, "%d\x00./%s\x00", e.want, e.real)
		most += e.want/3*4 + 8
	}
	out := session.NewHead(int(most) + 1024)
	if _, _, err := f.e.run(ctx, script{
		text: heads, args: []string{ws.Path}, stdin: strings.NewReader(names.String()), out: out,
	}); err != nil && !errors.Is(err, errScriptFailed) {
		return err
	}
	sc := bufio.NewReader(bytes.NewReader(out.Bytes()))
	for _, e := range wanted {
		line, err := sc.ReadBytes('\n')
		content, bad := base64.StdEncoding.DecodeString(strings.TrimSpace(string(line)))
		if err != nil || bad != nil || string(line) == "!\n" {
			c.Leave(e.name, "vanished or changed while it was collected")
			continue
		}
		c.Add(e.name, e.size, content[:min(int64(len(content)), e.want)])
	}
	return nil
}
