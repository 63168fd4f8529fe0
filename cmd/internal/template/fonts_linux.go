package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// FontDir is where matplotlib in a sandbox keeps what it finds out: a folder that
// the code can write to, outside of the user's home.
const FontDir = "/.cubby/matplotlib"

// FontScript is Python that makes matplotlib's list of fonts and prints it as a
// [FontList]. It is meant for a sandbox that has run nothing else.
const FontScript = `
import importlib.util, json, os
if importlib.util.find_spec("matplotlib") is None:
    print('{"none": true}')
else:
    from matplotlib import font_manager, get_cachedir
    name = next(n for n in sorted(os.listdir(get_cachedir())) if n.startswith("fontlist"))
    with open(os.path.join(get_cachedir(), name), encoding="utf-8") as f:
        print(json.dumps({"name": name, "content": f.read()}))
`

// FontList is a file that matplotlib would make in each sandbox anew, which takes it
// seconds where there are many fonts.
type FontList struct {
	Name    string `json:"name"` // of the file, with the version of its format
	Content string `json:"content"`
	// None says that this Python has no matplotlib: the one that was found is another
	// Python's. It is kept like a list, so that it is not tried again and again.
	None bool `json:"none,omitempty"`
}

const (
	maxFontList = 8 << 20 // bytes of its JSON
	maxFontDirs = 1000
)

var fontListName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^fontlist-v[0-9]{1,6}\.json$`)
})

// ReadFontList reads what FontScript printed, or what a file keeps of it.
func ReadFontList(r io.Reader) (FontList, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFontList+1))
	if err != nil {
		return FontList{}, err
	}
	var list FontList
	switch err := json.Unmarshal(b, &list); {
	case len(b) > maxFontList:
		return FontList{}, fmt.Errorf("a list of fonts of more than %d bytes", maxFontList)
	case err != nil:
		return FontList{}, fmt.Errorf("the list of fonts: %w", err)
	case list.None:
		return FontList{None: true}, nil
	case !fontListName().MatchString(list.Name) || !json.Valid([]byte(list.Content)):
		return FontList{}, errors.New("this is no list of fonts")
	}
	return list, nil
}

// FontKey stands for a toolchain's matplotlib and this machine's fonts; it is empty
// where there is no matplotlib. That of the system's Python is taken for that of any,
// since an environment may use it; trying tells. It reads the dates of some folders.
func FontKey(tc Toolchain) string {
	if tc.Python.Path == "" {
		return ""
	}
	bases := append([]string{filepath.Dir(filepath.Dir(tc.Python.Path)), "/usr", "/usr/local"}, tc.Python.Prefixes...)
	slices.Sort(bases)
	h := sha256.New()
	found := false
	note := func(name string) bool {
		info, err := os.Stat(name)
		if err == nil {
			fmt.Fprintf(h, "%s %d\n", name, info.ModTime().UnixNano())
		}
		return err == nil
	}
	for _, base := range slices.Compact(bases) {
		for _, lib := range names(base + "/lib") {
			if strings.HasPrefix(lib, "python3") {
				for _, packages := range []string{"site-packages", "dist-packages"} {
					found = note(path.Join(base, "lib", lib, packages, "matplotlib/__init__.py")) || found
				}
			}
		}
	}
	if !found {
		return ""
	}
	fmt.Fprintln(h, tc.Python.Path)
	dirs := []string{"/usr/share/fonts", "/usr/local/share/fonts"}
	for i := 0; i < len(dirs) && i < maxFontDirs; i++ {
		note(dirs[i])
		entries, _ := os.ReadDir(dirs[i])
		for _, e := range entries {
			if e.IsDir() {
				dirs = append(dirs, path.Join(dirs[i], e.Name()))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// names returns the sorted names in a folder, none if it cannot be read.
func names(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := f.Readdirnames(-1)
	slices.Sort(all)
	return all
}

// PutFontList gives the list to sandboxes that are made from now on.
func (r Root) PutFontList(list FontList) error {
	if list.None {
		return nil
	}
	if !fontListName().MatchString(list.Name) {
		return errors.New("this is no list of fonts")
	}
	// Whole or not there: a sandbox may be starting.
	made, final := r.Dir+FontDir+"/.made", r.Dir+path.Join(FontDir, list.Name)
	if err := os.WriteFile(made, []byte(list.Content), 0o600); err != nil {
		return fmt.Errorf("the list of fonts: %w", err)
	}
	if err := errors.Join(unix.Chmod(made, 0o666), os.Rename(made, final)); err != nil {
		return fmt.Errorf("the list of fonts: %w", err)
	}
	return nil
}
