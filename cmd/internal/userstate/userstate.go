// Package userstate keeps what a command remembers for its user from one start to the
// next, such as what was typed, in a folder that nobody else can read.
package userstate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Folder is the folder. Its files have mode 0600. It is safe for concurrent use, also
// by several processes.
type Folder struct{ root *os.Root }

// locate returns where the folder is, and the folder above it that must be there: users
// such as nobody have a home that is not to be made. getenv is os.Getenv.
func locate(getenv func(string) string) (path, above string, err error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cubby"), filepath.Dir(dir), nil
	}
	if dir := getenv("LocalAppData"); runtime.GOOS == "windows" && filepath.IsAbs(dir) {
		return filepath.Join(dir, "cubby", "state"), dir, nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "cubby"), home, nil
	}
	return "", "", errors.New("neither HOME nor XDG_STATE_HOME is set")
}

// Open opens the folder: cubby in $XDG_STATE_HOME or ~/.local/state, on Windows state
// below %LocalAppData%\cubby. It makes the folder if it is not there. It is an error where it
// cannot be private: where it, or the folder that it would be made in, belongs to another
// user, as HOME may for root, or where others may read it.
func Open(getenv func(string) string) (*Folder, error) {
	path, above, err := locate(getenv)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(above); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", above)
	}
	for at := filepath.Dir(path); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != above {
			continue
		}
		if err == nil {
			err = own(at, info)
		}
		if err != nil {
			return nil, err
		}
		break
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = private(path, info)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return &Folder{root}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// Read returns a file, of which there may be at most so many bytes. One that is not
// there is fs.ErrNotExist; one that others may read is refused.
func (f *Folder) Read(name string, most int64) ([]byte, error) {
	// Looked at before it is opened: the open of a pipe would wait.
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := private(name, info); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", name)
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return b, err
}

// Write makes a file anew, whole at any time.
func (f *Folder) Write(name string, content []byte) (err error) {
	if err := f.root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.%d.new", name, os.Getpid())
	if err := f.root.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	if err := f.root.Rename(temporary, name); err != nil {
		return errors.Join(err, f.root.Remove(temporary))
	}
	return nil
}

// Append adds to a file in one piece, and makes the file if it is not there.
func (f *Folder) Append(name string, content []byte) error {
	if info, err := f.root.Lstat(name); err == nil {
		if err := private(name, info); err != nil {
			return err
		}
	}
	file, err := f.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// private refuses what somebody else owns or may read.
func private(name string, info fs.FileInfo) error {
	if err := own(name, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("%s can be read or written by others: chmod go= it", name)
	}
	return nil
}
