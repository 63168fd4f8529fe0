package container

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/cubby-sandbox/cubby"
)

// image makes sure that the daemon has the image and returns its name or id.
func (d *docker) image(ctx context.Context, cfg Config) (string, error) {
	if cfg.Dockerfile != "" {
		return d.build(ctx, cfg)
	}
	const op = "find image"
	if cfg.Pull != PullAlways {
		switch _, err := d.api.ImageInspect(ctx, cfg.Image); {
		case err == nil:
			return cfg.Image, nil
		case !errdefs.IsNotFound(err):
			return "", d.explain(ctx, op, err)
		case cfg.Pull == PullNever:
			return "", &cubby.Error{Op: op, Code: cubby.CodeNotFound, Err: fmt.Errorf("%w: %s", ErrImageMissing, cfg.Image), Hint: "`docker pull " + cfg.Image + "`, or let Config.Pull do it"}
		}
	}
	cfg.Logger.InfoContext(ctx, "pulling an image", "image", cfg.Image)
	if err := d.pull(ctx, cfg.Image); err != nil {
		if ctx.Err() != nil || client.IsErrConnectionFailed(err) {
			return "", d.explain(ctx, "pull image", err)
		}
		return "", &cubby.Error{
			Op: "pull image", Code: cubby.CodeNotFound, Err: fmt.Errorf("%w, and cannot be pulled: %s: %w", ErrImageMissing, cfg.Image, err),
			Hint: "check the name, and that the daemon's machine reaches the registry; without a network, `docker load` or `docker import` an image",
		}
	}
	return cfg.Image, nil
}

func (d *docker) pull(ctx context.Context, image string) error {
	resp, err := d.api.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	return resp.Wait(ctx)
}

// Bounds of a build's context, and of what is kept of its log.
const (
	maxContext = 512 << 20
	maxLogLine = 1 << 20
	logLines   = 20
)

// build builds the Dockerfile and returns the image's id. Layers that did not
// change come from the daemon's cache.
func (d *docker) build(ctx context.Context, cfg Config) (string, error) {
	const op = "build image"
	dir, name, err := findDockerfile(cfg.Dockerfile)
	if err != nil {
		return "", &cubby.Error{Op: op, Code: cubby.CodeNotFound, Err: err, Hint: "Config.Dockerfile is a Dockerfile or a folder with one"}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", &cubby.Error{Op: op, Code: cubby.CodeNotFound, Err: err}
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packContext(w, root, name)
		w.CloseWithError(err)
		packed <- err
	}()
	args := make(map[string]*string, len(cfg.BuildArgs))
	for k, v := range cfg.BuildArgs {
		args[k] = &v
	}
	sum := sha256.Sum256([]byte(filepath.Join(dir, name)))
	resp, err := d.api.ImageBuild(ctx, r, client.ImageBuildOptions{
		Dockerfile: name, Remove: true, ForceRemove: true, BuildArgs: args, NetworkMode: cfg.BuildNetwork,
		PullParent: cfg.Pull == PullAlways, Tags: []string{"cubby-built:" + hex.EncodeToString(sum[:6])}, Labels: map[string]string{labelExecutor: "true"},
	})
	r.CloseWithError(errors.New("the build has ended"))
	if perr := <-packed; perr != nil && err != nil && !errors.Is(perr, io.ErrClosedPipe) && !strings.Contains(perr.Error(), "the build has ended") {
		return "", &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%w: %w", ErrBuild, perr)}
	}
	if err != nil {
		if errdefs.IsInvalidArgument(err) {
			return "", &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%w: %w", ErrBuild, err)}
		}
		return "", d.explain(ctx, op, err)
	}
	defer resp.Body.Close()
	id, log, err := readBuild(resp.Body)
	if err != nil {
		if ctx.Err() != nil {
			return "", d.explain(ctx, op, err)
		}
		return "", &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%w: %w\n%s", ErrBuild, err, log)}
	}
	cfg.Logger.InfoContext(ctx, "built an image", "dockerfile", cfg.Dockerfile, "image", id)
	return id, nil
}

// findDockerfile returns the context's folder and the Dockerfile's name in it.
func findDockerfile(p string) (dir, name string, err error) {
	p, err = filepath.Abs(p)
	if err != nil {
		return "", "", err
	}
	info, err := os.Stat(p)
	if err != nil {
		return "", "", err
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(p, "Dockerfile")); err != nil {
			return "", "", err
		}
		return p, "Dockerfile", nil
	}
	return filepath.Dir(p), filepath.Base(p), nil
}

// packContext writes the folder as a tar stream, without what .dockerignore
// names. Links travel as links.
func packContext(w io.Writer, root *os.Root, dockerfile string) error {
	var ignored *patternmatcher.PatternMatcher
	if f, err := root.Open(".dockerignore"); err == nil {
		patterns, err := ignorefile.ReadAll(io.LimitReader(f, 1<<20))
		f.Close()
		if err == nil {
			ignored, err = patternmatcher.New(append(patterns, "!"+dockerfile))
		}
		if err != nil {
			return fmt.Errorf(".dockerignore: %w", err)
		}
	}
	tw := tar.NewWriter(w)
	total := int64(0)
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "." {
			return nil
		}
		if ignored != nil {
			skip, err := ignored.MatchesOrParentMatches(filepath.FromSlash(name))
			if err != nil {
				return err
			}
			if skip {
				if entry.IsDir() && !ignored.Exclusions() {
					return fs.SkipDir
				}
				return nil
			}
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = root.Readlink(name); err != nil {
				return err
			}
		case !info.Mode().IsRegular() && !info.IsDir():
			return nil
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = path.Clean(name)
		h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
		if info.IsDir() {
			h.Name += "/"
		}
		if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		if total += info.Size(); total > maxContext {
			return fmt.Errorf("the context has more than %d MiB: name what is not needed in .dockerignore", maxContext>>20)
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyN(tw, f, info.Size())
		return noEOF(err)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// readBuild reads the daemon's report of a build: the image's id, or what went
// wrong and the last lines of the log.
func readBuild(r io.Reader) (id, log string, err error) {
	dec := json.NewDecoder(r)
	last := &tail{}
	for {
		var m jsonstream.Message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", last.String(), err
		}
		if m.Error != nil {
			return "", last.String(), errors.New(m.Error.Message)
		}
		_, _ = io.WriteString(last, m.Stream)
		if m.Aux != nil {
			var built struct{ ID string }
			if json.Unmarshal(*m.Aux, &built) == nil && built.ID != "" {
				id = built.ID
			}
		}
	}
	if id == "" {
		return "", last.String(), errors.New("the daemon did not say what it built")
	}
	return id, "", nil
}

// lastLines makes what a container or a build said fit for an error: its last
// lines, without what would confuse a terminal.
func lastLines(text string) string {
	text = strings.TrimRight(text, " \r\n")
	lines := strings.Split(text, "\n")
	lines = lines[max(0, len(lines)-logLines):]
	var b bytes.Buffer
	for _, line := range lines {
		b.WriteString("\n\t| ")
		b.WriteString(strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(line, "\uFFFD")))
	}
	return b.String()
}
