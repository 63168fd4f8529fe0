package artifact

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby"
)

const (
	// MaxDirBytes bounds one artifact in a [Dir].
	MaxDirBytes = 1 << 30
	// maxHeader bounds the line before an artifact's data.
	maxHeader = 64 << 10
	// maxSaves bounds how often Save tries when others save the same name.
	maxSaves = 1000
)

// Dir keeps artifacts in a folder, which several processes may share. Names
// become file names that are safe on every system; a version is one file, a line
// of JSON and the data, and appears at once or not at all.
type Dir struct{ root *os.Root }

var _ Service = (*Dir)(nil)

// NewDir opens a folder, which is made if need be. The caller closes the Dir.
func NewDir(folder string) (*Dir, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fail("open artifacts", cubby.CodeInvalidArgument, err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fail("open artifacts", cubby.CodeInvalidArgument, err)
	}
	return &Dir{root}, nil
}

// Close lets go of the folder.
func (d *Dir) Close() error { return d.root.Close() }

// header is the first line of a version.
type header struct {
	Name     string `json:"name"`
	MIMEType string `json:"mime_type,omitempty"`
	URL      string `json:"url,omitempty"`
	Size     int64  `json:"size"`
}

// escape makes any text a name that is one path element everywhere, also where
// case does not count. Texts that would become too long are hashed.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0 && i < len(s)-1 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	// The prefix keeps it from being empty or a name that a system reserves.
	if b.Len() > 120 {
		sum := sha256.Sum256([]byte(s))
		return "h-" + hex.EncodeToString(sum[:])
	}
	return "n-" + b.String()
}

func (s scope) folder() string {
	if s.shared {
		return filepath.Join(escape(s.app), escape(s.user), "shared")
	}
	return filepath.Join(escape(s.app), escape(s.user), "session", escape(s.session))
}

// Save implements [Service].
func (d *Dir) Save(ctx context.Context, info SessionInfo, name string, a *Artifact) (int, error) {
	const op = "save artifact"
	s, err := scopeOf(info, name)
	if err == nil && a == nil {
		err = errors.New("there is no artifact")
	}
	if err == nil && len(a.Data) > MaxDirBytes {
		err = fmt.Errorf("an artifact of more than %d bytes", MaxDirBytes)
	}
	if err != nil {
		return 0, fail(op, cubby.CodeInvalidArgument, err)
	}
	head, err := json.Marshal(header{Name: name, MIMEType: a.MIMEType, URL: a.URL, Size: int64(len(a.Data))})
	if err == nil && len(head) >= maxHeader {
		err = errors.New("the artifact's URL or MIME type is too long")
	}
	if err != nil {
		return 0, fail(op, cubby.CodeInvalidArgument, err)
	}
	folder := filepath.Join(s.folder(), escape(name))
	for range maxSaves {
		if err := ctx.Err(); err != nil {
			return 0, fail(op, cubby.CodeCanceled, err)
		}
		version, err := d.save(folder, head, a.Data)
		// Another process took the number, or deleted the artifact meanwhile.
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fail(op, cubby.CodeInternal, err)
		}
		return version, nil
	}
	return 0, fail(op, cubby.CodeConflict, errors.New("too many others save it"))
}

func (d *Dir) save(folder string, head, data []byte) (version int, err error) {
	if err := d.root.MkdirAll(folder, 0o700); err != nil {
		return 0, err
	}
	versions, err := d.versions(folder)
	if err != nil {
		return 0, err
	}
	if len(versions) > 0 {
		version = versions[len(versions)-1] + 1
	}
	temp := filepath.Join(folder, "."+rand.Text())
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer d.root.Remove(temp)
	_, err = io.Copy(f, io.MultiReader(bytes.NewReader(append(head, '\n')), bytes.NewReader(data)))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	// A link, unlike a rename, never replaces a version.
	return version, d.root.Link(temp, filepath.Join(folder, strconv.Itoa(version)))
}

// versions lists what a name's folder holds, in order.
func (d *Dir) versions(folder string) ([]int, error) {
	f, err := d.root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var versions []int
	for _, name := range names {
		if n, err := strconv.ParseInt(name, 10, 31); err == nil && n >= 0 && strconv.FormatInt(n, 10) == name {
			versions = append(versions, int(n))
		}
	}
	slices.Sort(versions)
	return versions, nil
}

// Load implements [Service].
func (d *Dir) Load(ctx context.Context, info SessionInfo, name string, version *int) (*Artifact, error) {
	const op = "load artifact"
	s, err := scopeOf(info, name)
	if err != nil {
		return nil, fail(op, cubby.CodeInvalidArgument, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fail(op, cubby.CodeCanceled, err)
	}
	folder := filepath.Join(s.folder(), escape(name))
	n := 0
	if version != nil {
		n = *version
	} else {
		versions, err := d.versions(folder)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(versions) == 0 {
			return nil, notFound(op, name, nil)
		} else if err != nil {
			return nil, fail(op, cubby.CodeInternal, err)
		}
		n = versions[len(versions)-1]
	}
	h, data, err := d.read(filepath.Join(folder, strconv.Itoa(n)), true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound(op, name, version)
	} else if err != nil {
		return nil, fail(op, cubby.CodeInternal, fmt.Errorf("version %d of %q: %w", n, name, err))
	}
	return &Artifact{Data: data, MIMEType: h.MIMEType, URL: h.URL, Name: name}, nil
}

// read reads one version, its data only if that is asked for.
func (d *Dir) read(path string, withData bool) (header, []byte, error) {
	f, err := d.root.Open(path)
	if err != nil {
		return header{}, nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxHeader)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return header{}, nil, fmt.Errorf("damaged: %w", err)
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, nil, fmt.Errorf("damaged: %w", err)
	}
	if !withData {
		return h, nil, nil
	}
	if h.Size < 0 || h.Size > MaxDirBytes {
		return header{}, nil, fmt.Errorf("damaged: a size of %d", h.Size)
	}
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(line))+h.Size {
		return header{}, nil, errors.Join(errors.New("damaged: not as long as it says"), err)
	}
	data := make([]byte, h.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return header{}, nil, fmt.Errorf("damaged: %w", err)
	}
	return h, data, nil
}

// ListKeys implements [Service].
func (d *Dir) ListKeys(ctx context.Context, info SessionInfo) ([]string, error) {
	const op = "list artifacts"
	if err := checkInfo(info); err != nil {
		return nil, fail(op, cubby.CodeInvalidArgument, err)
	}
	var names []string
	for _, s := range []scope{
		{app: info.AppName, user: info.UserID, session: info.SessionID},
		{app: info.AppName, user: info.UserID, shared: true},
	} {
		entries, err := fs.ReadDir(d.root.FS(), filepath.ToSlash(s.folder()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fail(op, cubby.CodeInternal, err)
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return nil, fail(op, cubby.CodeCanceled, err)
			}
			folder := filepath.Join(s.folder(), e.Name())
			versions, err := d.versions(folder)
			if err != nil || len(versions) == 0 {
				continue // it is being made or deleted
			}
			if h, _, err := d.read(filepath.Join(folder, strconv.Itoa(versions[0])), false); err == nil && escape(h.Name) == e.Name() {
				names = append(names, h.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete implements [Service].
func (d *Dir) Delete(_ context.Context, info SessionInfo, name string) error {
	const op = "delete artifact"
	s, err := scopeOf(info, name)
	if err != nil {
		return fail(op, cubby.CodeInvalidArgument, err)
	}
	for range maxSaves {
		err = d.root.RemoveAll(filepath.Join(s.folder(), escape(name)))
		if !errors.Is(err, fs.ErrExist) { // which says that it is not empty: others save it meanwhile
			break
		}
	}
	if err != nil {
		return fail(op, cubby.CodeInternal, err)
	}
	return nil
}

// ListVersions implements [Service].
func (d *Dir) ListVersions(_ context.Context, info SessionInfo, name string) ([]int, error) {
	const op = "list versions"
	s, err := scopeOf(info, name)
	if err != nil {
		return nil, fail(op, cubby.CodeInvalidArgument, err)
	}
	versions, err := d.versions(filepath.Join(s.folder(), escape(name)))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(versions) == 0 {
		return nil, notFound(op, name, nil)
	} else if err != nil {
		return nil, fail(op, cubby.CodeInternal, err)
	}
	return versions, nil
}
