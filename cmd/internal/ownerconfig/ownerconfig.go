// Package ownerconfig is the configuration file of whoever owns a server: where
// it is and with which key, so that the command line need not be told. The first
// start of `cubby serve` writes it. [Find] says which server a command is for, by
// this file and what stands before it: flags and the environment.
package ownerconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/fileowner"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Config is the content of the file. Fields may be empty.
type Config struct {
	APIURL     string `json:"api_url"`     // of the control plane
	SandboxURL string `json:"sandbox_url"` // through which sandboxes are reached
	APIKey     string `json:"api_key"`
}

// maxSize bounds the file in bytes.
const maxSize = 64 << 10

// Path returns where the file is: cubby/config.json in $XDG_CONFIG_HOME or
// ~/.config. getenv is os.Getenv.
func Path(getenv func(string) string) (string, error) {
	// The specification has relative paths ignored.
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cubby", "config.json"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "cubby", "config.json"), nil
	}
	return "", fail("find the configuration", errors.New("HOME is not set"), "set HOME or XDG_CONFIG_HOME")
}

// Load reads the file. One that is not there is fs.ErrNotExist. One that other
// users may read or write is refused, as it holds a key; so is one that belongs to
// another user than this one or root, and one that is malformed.
func Load(path string) (Config, error) {
	const op = "read the configuration"
	// Without O_NONBLOCK a pipe of that name would block for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Config{}, err
		}
		return Config{}, fail(op, err, "look at its permissions")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Config{}, fail(op, err, "")
	}
	if !info.Mode().IsRegular() {
		return Config{}, fail(op, fmt.Errorf("%s is not a file", path), "move it away")
	}
	if perm := fileowner.Perm(info); perm&0o077 != 0 {
		return Config{}, fail(op, fmt.Errorf("%s holds an API key, and other users may read or write it (mode %04o)", path, perm),
			"chmod 600 "+path+"; if others may have read the key, revoke it (cubby keys)")
	}
	if uid, other := fileowner.Other(info); other {
		return Config{}, fail(op, fmt.Errorf("%s belongs to another user (uid %d), who says with it where code and files are sent", path, uid),
			fmt.Sprintf("run as that user, or set XDG_CONFIG_HOME; if the file is yours, chown %d %s", os.Geteuid(), path))
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return Config{}, fail(op, err, "")
	}
	c, err := parse(content)
	if err != nil {
		return Config{}, fail(op, fmt.Errorf("%s: %w", path, err), "correct it, or move it away")
	}
	return c, nil
}

// Save writes the file with mode 0600, and its folder with 0700 if that is not
// there. Whoever reads meanwhile, or after a crash, finds the old content or the
// new one, whole.
func Save(path string, c Config) (err error) {
	const op = "write the configuration"
	content, err := format(c)
	if err != nil {
		return fail(op, err, "")
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(op, err, "look at the folder's permissions")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fail(op, err, "look at the folder's permissions")
	}
	if perm := fileowner.Perm(info); perm&0o022 != 0 {
		return fail(op, fmt.Errorf("%s: other users may write this folder (mode %04o)", dir, perm), "chmod 700 "+dir)
	}
	f, err := os.CreateTemp(dir, ".config-*.json") // mode 0600
	if err != nil {
		return fail(op, err, "look at the folder's permissions")
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fail(op, err, "look at the folder's filesystem")
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fail(op, err, "look at what is there")
	}
	return nil
}

func format(c Config) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// parse ignores fields that it does not know: a later version may have more.
func parse(content []byte) (Config, error) {
	if len(content) > maxSize {
		return Config{}, fmt.Errorf("longer than %d bytes", maxSize)
	}
	var c Config
	if trimmed := bytes.TrimSpace(content); len(trimmed) == 0 || trimmed[0] != '{' {
		return Config{}, errors.New("not a JSON object")
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return Config{}, fmt.Errorf("not valid: %w", err)
	}
	return c, c.check()
}

// check refuses what no client could use. It does not quote the key.
func (c Config) check() error {
	for _, f := range []struct{ name, value string }{{"api_url", c.APIURL}, {"sandbox_url", c.SandboxURL}} {
		if f.value == "" {
			continue
		}
		if err := CheckURL(f.value); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if !isKey(c.APIKey) {
		return errors.New("api_key: has characters that no key has")
	}
	return nil
}

// isKey reports whether a key can be sent as it stands.
func isKey(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
}

// CheckURL says why an address cannot be a server's; nil if it can.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is not an http or https URL", address)
	}
	return nil
}

func fail(op string, err error, hint string) error {
	return &fault.Error{Op: op, Code: fault.Unavailable, Err: err, Hint: hint}
}
