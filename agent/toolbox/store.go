package toolbox

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby"
)

type memory struct {
	mu    sync.Mutex
	tools map[string]Kept
}

func (m *memory) put(k Kept) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.tools[k.Name]; ok {
		return errTaken
	}
	m.tools[k.Name] = k
	return nil
}

func (m *memory) get(name string) (Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.tools[name]
	if !ok {
		return Kept{}, notFound(name)
	}
	k.Schema = slices.Clone(k.Schema)
	return k, nil
}

func (m *memory) list() ([]Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Kept
	for _, name := range slices.Sorted(maps.Keys(m.tools)) {
		k := m.tools[name]
		k.Schema = slices.Clone(k.Schema)
		all = append(all, k)
	}
	return all, nil
}

func (m *memory) remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.tools[name]; !ok {
		return notFound(name)
	}
	delete(m.tools, name)
	return nil
}

// folder keeps each tool in a file of its own. os.Root keeps links in it from
// leading elsewhere.
type folder struct{ dir string }

const (
	suffix  = ".json"
	version = 1
	// maxFile is more than a tool in JSON can have: an escape is six bytes for one.
	maxFile = 6*(MaxCode+MaxDescription*4) + 2*MaxSchema + 8<<10
	// maxEntries bounds what is read of a folder that holds other things.
	maxEntries = 10 * MaxTools
)

// file is what is in one.
type file struct {
	Version int `json:"version"`
	Kept
}

func openFolder(dir string) (*folder, error) {
	if dir == "" {
		return nil, errors.New("the folder has no name")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 {
		return nil, &cubby.Error{
			Code: cubby.CodePermissionDenied, Err: fmt.Errorf("everybody can write into %s, and so give tools to your agent", dir),
			Hint: "chmod o-w " + dir,
		}
	}
	return &folder{dir}, nil
}

func (f *folder) root() (*os.Root, error) { return os.OpenRoot(f.dir) }

func (f *folder) put(k Kept) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // it would write another schema than was hashed
	if err := e.Encode(file{version, k}); err != nil {
		return err
	}
	root, err := f.root()
	if err != nil {
		return err
	}
	defer root.Close()
	temp := "." + k.Name + "." + rand.Text()
	defer root.Remove(temp) // it is only there if something went wrong, or by its second name
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	// A link, unlike renaming, does not replace what another process has kept.
	err = root.Link(temp, k.Name+suffix)
	if errors.Is(err, fs.ErrExist) {
		return errTaken
	}
	if err == nil {
		return nil
	}
	// Some file systems have no links.
	if _, there := root.Lstat(k.Name + suffix); there == nil {
		return errTaken
	}
	return root.Rename(temp, k.Name+suffix)
}

func (f *folder) get(name string) (Kept, error) {
	root, err := f.root()
	if err != nil {
		return Kept{}, err
	}
	defer root.Close()
	return read(root, name)
}

func read(root *os.Root, name string) (Kept, error) {
	// Opening a FIFO would wait for a writer.
	info, err := root.Stat(name + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return Kept{}, notFound(name)
	}
	if err != nil {
		return Kept{}, err
	}
	damaged := func(err error) error {
		return &cubby.Error{
			Code: cubby.CodeConflict, Err: fmt.Errorf("tool %s is not as it was kept: %w", name, err),
			Hint: "remove it, look at its code, and keep it again",
		}
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return Kept{}, damaged(errors.New("no regular file of a fitting size"))
	}
	in, err := root.Open(name + suffix)
	if err != nil {
		return Kept{}, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return Kept{}, err
	}
	k, err := decode(text)
	if err == nil && k.Name != name {
		err = fmt.Errorf("it is the tool %s", k.Name)
	}
	if err != nil {
		return Kept{}, damaged(err)
	}
	return k, nil
}

// decode reads a file. It may be anybody's.
func decode(text []byte) (Kept, error) {
	if len(text) > maxFile {
		return Kept{}, errors.New("it is too long")
	}
	var in file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return Kept{}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return Kept{}, errors.New("something follows the tool")
	}
	if in.Version != version {
		return Kept{}, fmt.Errorf("it is of version %d, this program knows %d", in.Version, version)
	}
	k, _, err := in.Kept.normalized()
	if err != nil {
		return Kept{}, err
	}
	if k.hash() != in.Hash {
		return Kept{}, errors.New("its hash is another one")
	}
	return k, nil
}

func (f *folder) list() ([]Kept, error) {
	root, err := f.root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxEntries)
	if err != nil && err != io.EOF {
		return nil, err
	}
	slices.Sort(names)
	var (
		all  []Kept
		errs []error
	)
	for _, entry := range names {
		name, ok := strings.CutSuffix(entry, suffix)
		if !ok || !toolName.MatchString(name) || len(all) == MaxTools {
			continue
		}
		k, err := read(root, name)
		if cubby.CodeOf(err) == cubby.CodeNotFound {
			continue // removed in between
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, k)
	}
	return all, errors.Join(errs...)
}

func (f *folder) remove(name string) error {
	root, err := f.root()
	if err != nil {
		return err
	}
	defer root.Close()
	err = root.Remove(name + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(name)
	}
	return err
}
