package agentcmd

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Bounds of what goes in.
const (
	maxInputFiles = 1000
	maxInputBytes = 256 << 20
	maxImageBytes = 4 << 20
)

// inputs are files of this machine, read.
type inputs struct {
	files []codeexec.File
	bytes int64
	taken map[string]bool
}

// readInputs reads files, and folders with what is in them: regular files, and
// never what a symbolic link in a folder points at.
func readInputs(paths []string) ([]codeexec.File, error) {
	in := inputs{taken: map[string]bool{}}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, usagef("-f: %v", err)
		}
		absolute, err := filepath.Abs(p)
		if err != nil {
			return nil, usagef("-f: %v", err)
		}
		base := filepath.Base(absolute)
		if !info.IsDir() {
			if err := in.add(p, base, info); err != nil {
				return nil, err
			}
			continue
		}
		err = filepath.WalkDir(p, func(at string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(p, at)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			return in.add(at, path.Join(base, filepath.ToSlash(rel)), info)
		})
		if err != nil {
			return nil, usagef("-f: %w", err)
		}
	}
	return in.files, nil
}

func (in *inputs) add(local, name string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return usagef("-f %s: not a file or folder", local)
	case in.taken[name]:
		return usagef("-f %s: there are two files %q; rename one, or put both into a folder", local, name)
	case len(in.files) == maxInputFiles:
		return usagef("-f %s: more than %d files; name fewer, or pack them into an archive", local, maxInputFiles)
	case in.bytes+info.Size() > maxInputBytes:
		return usagef("-f %s: more than %d MB in all", local, maxInputBytes>>20)
	}
	content, err := os.ReadFile(local)
	if err != nil {
		return usagef("-f: %v", err)
	}
	in.taken[name] = true
	in.bytes += int64(len(content))
	in.files = append(in.files, codeexec.File{Name: name, Content: content, SizeBytes: int64(len(content))})
	return nil
}

// maxSystem bounds instructions, in bytes: they are sent with each question.
const maxSystem = 256 << 10

// readSystem returns the text of --system, or that of the file behind an @.
func readSystem(value string) (string, error) {
	name, ok := strings.CutPrefix(value, "@")
	if !ok {
		return value, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return "", usagef("--system: %v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSystem+1))
	switch {
	case err != nil:
		return "", usagef("--system: %v", err)
	case len(b) > maxSystem:
		return "", usagef("--system %s: more than %d KiB, which would be sent with each question", name, maxSystem>>10)
	case !utf8.Valid(b):
		return "", usagef("--system %s: it is no text", name)
	}
	return string(b), nil
}

// picturesOf are the files that a model can look at.
func picturesOf(files []codeexec.File) []agent.Image {
	var all []agent.Image
	for _, f := range files {
		if len(f.Content) > maxImageBytes {
			continue
		}
		switch mime := http.DetectContentType(f.Content); mime {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			all = append(all, agent.Image{Name: f.Name, MIMEType: mime, Data: f.Content})
		}
	}
	return all
}

// saved is what became of a file that came back.
type saved struct {
	path string // of this machine; empty if the file could not be written
	name string // in the sandbox
	left string // why the file, or some of it, is not there; empty if all is
}

// save writes files below a folder, which is made if there is none. Their names
// come from the sandbox: none of them leads out of it, nor through a link.
func save(dir string, files []codeexec.File) []saved {
	if len(files) == 0 {
		return nil
	}
	root, err := openFolder(dir)
	if err == nil {
		defer root.Close()
	}
	var all []saved
	for _, f := range files {
		s := saved{path: filepath.Join(dir, filepath.FromSlash(f.Name)), name: f.Name}
		if f.Truncated {
			s.left = fmt.Sprintf("cut: %d of %d bytes", len(f.Content), f.SizeBytes)
		}
		why := err
		if err == nil {
			why = saveOne(root, f)
		}
		if why != nil {
			s.path, s.left = "", "not saved: "+why.Error()
		}
		all = append(all, s)
	}
	return all
}

func openFolder(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

func saveOne(root *os.Root, f codeexec.File) error {
	name := filepath.FromSlash(f.Name)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("its name leads out of the folder")
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return root.WriteFile(name, f.Content, 0o644)
}
