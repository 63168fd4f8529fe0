package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby"
)

const (
	// maxPictureNames bounds the search for a free name in the current folder.
	maxPictureNames = 10_000
	maxShownLeft    = 20
	maxListedLeft   = 1000 // in --json
	snapshotDepth   = 64
)

// errFormTooLarge is why a form of a result has no file.
var errFormTooLarge = errors.New("too large to be brought back in this form")

// savedFile is one file that came back.
type savedFile struct {
	Path string `json:"path"` // below the folder of -o
	Size int64  `json:"size"` // bytes
	// From says where it came from: "file" or "result".
	From  string `json:"from"`
	shown string // for people
}

// leftFile is something that did not come back.
type leftFile struct {
	Path   string `json:"path"` // below the folder of -o, or the sandbox's own
	Reason string `json:"reason"`
}

// collector brings new and changed files, and rich results, back.
type collector struct {
	files cubby.Files
	flags runFlags

	known  map[string]cubby.Entry
	hidden map[string]int // files in hidden folders, by folder
	saved  []savedFile
	left   []leftFile
	more   int  // entries that were left beside those
	lost   bool // something with content is among what was left

	source cubby.Entry // the file that the code itself became; it is no result
}

// before notes what is there, so that after can tell what is new.
func (c *collector) before(ctx context.Context) error {
	if c.flags.out == "" {
		return nil
	}
	c.known = map[string]cubby.Entry{}
	return c.files.Walk(ctx, cubby.Home, snapshotDepth, func(e cubby.Entry) error {
		c.known[e.Path] = e
		return nil
	})
}

// leave notes that something did not come back, and why.
func (c *collector) leave(name string, why error) {
	reason := why.Error()
	switch {
	case errors.Is(why, cubby.ErrTooManyFiles):
		reason = fmt.Sprintf("over the limit of %d files (--out-max-files)", c.flags.outMaxFiles)
		if c.flags.out == "" {
			reason = fmt.Sprintf("over the limit of %d pictures: -o takes more with --out-max-files", cubby.DefaultDownloadFiles)
		}
	case errors.Is(why, cubby.ErrTooManyBytes):
		reason = fmt.Sprintf("over the limit of %s in all (--out-max-bytes)", c.flags.outMaxBytes.Long())
	}
	c.lost = c.lost || !errors.Is(why, cubby.ErrNoContent)
	if len(c.left) == maxListedLeft {
		c.more++
		return
	}
	c.left = append(c.left, leftFile{name, reason})
}

// after brings everything back: files first, then results.
func (c *collector) after(ctx context.Context, results []cubby.Result) error {
	switch {
	case c.flags.out != "":
		return c.toFolder(ctx, results)
	case c.flags.json:
		return nil // the object holds the results
	}
	return c.picturesHere(results)
}

// filter leaves out what was there before, and the settings that tools keep in
// hidden folders; caches without a word.
func (c *collector) filter(e cubby.Entry) error {
	old, ok := c.known[e.Path]
	if ok && old.Size == e.Size && old.Mode == e.Mode && old.ModTime.Equal(e.ModTime) && old.Target == e.Target {
		return cubby.ErrSkip
	}
	if !ok && e.Path == c.source.Path && e.Size == c.source.Size {
		return cubby.ErrSkip
	}
	rel := strings.TrimPrefix(e.Path, cubby.Home+"/")
	if top, _, below := strings.Cut(rel, "/"); strings.HasPrefix(top, ".") && (below || e.IsDir()) {
		if _, ok := c.hidden[top]; !e.IsDir() && top != ".cache" && (ok || len(c.hidden) < maxListedLeft) {
			c.hidden[top]++
		}
		return cubby.ErrSkip
	}
	if strings.HasSuffix(rel, "/__pycache__") || rel == "__pycache__" || strings.Contains("/"+rel, "/__pycache__/") {
		return cubby.ErrSkip
	}
	return nil
}

func (c *collector) toFolder(ctx context.Context, results []cubby.Result) error {
	c.hidden = map[string]int{}
	d, err := c.files.Download(ctx, cubby.Home, c.flags.out, cubby.DownloadOptions{
		MaxFiles: c.flags.outMaxFiles, MaxBytes: int64(c.flags.outMaxBytes), Filter: c.filter,
	})
	if d == nil {
		return err
	}
	for _, l := range d.Left {
		c.leave(l.Path, l.Why)
	}
	if d.LeftMore > 0 {
		c.more, c.lost = c.more+d.LeftMore, true
	}
	taken := map[string]bool{}
	bytesLeft := int64(c.flags.outMaxBytes)
	for _, f := range d.Files {
		taken[strings.ToLower(f.Path)] = true
		bytesLeft -= f.Size
		c.saved = append(c.saved, savedFile{f.Path, f.Size, "file", filepath.Join(c.flags.out, filepath.FromSlash(f.Path))})
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(c.flags.out)
	if err != nil {
		return err
	}
	defer root.Close()
	n := 0
	for _, r := range results {
		all := forms(r)
		if len(all) == 0 && len(r.LeftOut) == 0 {
			continue
		}
		n++
		for _, form := range r.LeftOut {
			c.leave("result-"+strconv.Itoa(n)+" ("+form+")", errFormTooLarge)
		}
		for _, form := range all {
			name := "result-" + strconv.Itoa(n) + form.ext
			for i := 2; taken[strings.ToLower(name)]; i++ {
				name = "result-" + strconv.Itoa(n) + "-" + strconv.Itoa(i) + form.ext
			}
			taken[name] = true
			size := int64(len(form.data))
			why := replaceWithin(root, name, form.data, c.flags.outMaxFiles-len(c.saved), bytesLeft)
			if why != nil {
				c.leave(name, why)
				continue
			}
			bytesLeft -= size
			c.saved = append(c.saved, savedFile{name, size, "result", filepath.Join(c.flags.out, name)})
		}
	}
	return nil
}

// replaceWithin is replace within what the limits leave.
func replaceWithin(root *os.Root, name string, data []byte, files int, bytes int64) error {
	switch {
	case files <= 0:
		return cubby.ErrTooManyFiles
	case int64(len(data)) > bytes:
		return cubby.ErrTooManyBytes
	}
	return unwritten(replace(root, name, data))
}

// unwritten says of an error of ours only why, since who hears it knows the name.
func unwritten(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("cannot be written: %w", e.Err)
	}
	return err
}

// replace writes a file of ours; a link that stands in its place is removed and
// not followed.
func replace(root *os.Root, name string, data []byte) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return create(root, name, data)
}

func create(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = root.Remove(name) // a half is worse than nothing
	}
	return err
}

// picturesHere writes pictures to the current folder under names that are
// free.
func (c *collector) picturesHere(results []cubby.Result) error {
	if !slices.ContainsFunc(results, func(r cubby.Result) bool { return len(pictures(r)) > 0 }) {
		return nil // nor need the folder be one that this user can open
	}
	root, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	defer root.Close()
	n := 1
	for _, r := range results {
		for _, p := range pictures(r) {
			if len(c.saved) >= cubby.DefaultDownloadFiles {
				c.leave("picture"+p.ext, cubby.ErrTooManyFiles)
				continue
			}
			name, err := createFree(root, &n, p)
			if err != nil {
				c.leave("picture"+p.ext, unwritten(err))
				continue
			}
			c.saved = append(c.saved, savedFile{name, int64(len(p.data)), "result", name})
		}
	}
	return nil
}

func createFree(root *os.Root, n *int, p form) (string, error) {
	for ; *n < maxPictureNames; *n++ {
		name := "cubby-" + strconv.Itoa(*n) + p.ext
		err := create(root, name, p.data)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		*n++
		return name, err
	}
	return "", errors.New("every name up to cubby-" + strconv.Itoa(maxPictureNames) + " is taken")
}

// sayLeft lists what did not come back, and why.
func (c *collector) sayLeft(w io.Writer) {
	for i, l := range c.left[:min(len(c.left), maxShownLeft)] {
		fmt.Fprintf(w, "left: %s: %s\n", printable(l.Path), l.Reason)
		if i == maxShownLeft-1 && len(c.left)+c.more > maxShownLeft {
			fmt.Fprintf(w, "left: %d more\n", len(c.left)+c.more-maxShownLeft)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(c.hidden)) {
		n := c.hidden[name]
		if i == maxShownLeft {
			fmt.Fprintf(w, "left: %d more hidden folders\n", len(c.hidden)-i)
			break
		}
		fmt.Fprintf(w, "left: %s: %d files in a hidden folder\n", printable(name), n)
	}
}

// printable quotes a hostile name unless it is harmless.
func printable(name string) string {
	if q := strconv.QuoteToGraphic(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// form is one form of a result as a file.
type form struct {
	ext  string
	data []byte
}

// pictures returns the forms that a text cannot stand for.
func pictures(r cubby.Result) []form {
	return present(
		form{".png", r.PNG}, form{".jpg", r.JPEG}, form{".svg", []byte(r.SVG)}, form{".pdf", r.PDF})
}

// forms returns every form that is worth a file.
func forms(r cubby.Result) []form {
	return append(pictures(r), present(
		form{".html", []byte(r.HTML)}, form{".md", []byte(r.Markdown)}, form{".tex", []byte(r.LaTeX)},
		form{".json", r.JSON}, form{".js", []byte(r.JavaScript)},
		form{".data.json", r.Data}, form{".chart.json", r.Chart})...)
}

func present(all ...form) []form {
	var out []form
	for _, f := range all {
		if len(f.data) > 0 {
			out = append(out, f)
		}
	}
	return out
}
