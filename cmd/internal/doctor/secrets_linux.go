package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/fileowner"
	"github.com/cubby-sandbox/cubby/cmd/internal/vault/keysource"
)

// SecretsKey says where the key is that a server seals teams' secrets with, as its flags
// do. Without File, Env and Command it is derived from the data folder's key.
type SecretsKey struct {
	DataDir            string
	File, Env, Command string // at most one; Env names the variable
}

// folderKey is the name of a data folder's key.
const folderKey = "secret.key"

// check tells what protects the secrets. getenv is asked for the key of Env; a key is
// read and not shown.
func (k SecretsKey) check(ctx context.Context, getenv func(string) string) Check {
	switch {
	case k.File != "":
		return k.checkFile()
	case k.Env != "":
		c := keyCheck("the environment variable " + k.Env)
		if _, err := keysource.Parse(getenv(k.Env)); err != nil {
			return unusable(c, fmt.Errorf("the variable %s: %w", k.Env, err))
		}
		c.Detail += ", which no copy of the data folder has; programs of the server's user and root can read it in /proc"
		return c
	case k.Command != "":
		c := keyCheck("what the command prints")
		if _, err := keysource.Command(ctx, k.Command); err != nil {
			return unusable(c, err)
		}
		c.Detail += ", which no copy of the data folder has; who may run the command as the server's user has the key"
		return c
	}
	return k.checkFolder()
}

func (k SecretsKey) checkFile() Check {
	c := keyCheck(k.File)
	if _, err := keysource.File(k.File); err != nil {
		return unusable(c, err)
	}
	said, info, err := file(k.File)
	if err != nil {
		return unusable(c, err)
	}
	c.Detail += " (" + said + ")"
	if uid, other := fileowner.Other(info); other {
		c.Status = Warn
		c.Detail += fmt.Sprintf(", which belongs to another user (uid %d), who may read and change it", uid)
		c.Remedy = fmt.Sprintf("chown %d %s, if the file is yours", os.Geteuid(), k.File)
		return c
	}
	if within(k.DataDir, k.File) {
		c.Status = Warn
		c.Detail += ", inside of the data folder: a copy or backup of the folder opens the secrets"
		c.Remedy = "keep the key elsewhere, and out of backups of " + k.DataDir
		return c
	}
	c.Detail += ", which no copy of the data folder has; the server's user and root can read it"
	return c
}

// checkFolder is about the key that a server has if it is told of none.
func (k SecretsKey) checkFolder() Check {
	path := filepath.Join(k.DataDir, folderKey)
	const better = "--secrets-key-file, --secrets-key-env or --secrets-key-command of cubby serve has a key kept elsewhere"
	c := keyCheck("a key that is derived from " + path)
	said, info, err := file(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Detail = "no server has run here with the data folder " + k.DataDir + "; the key of secrets will be derived from " + folderKey +
			" in it, which protects copies of the database alone: " + better
		return c
	case err != nil:
		return unusable(c, err)
	}
	c.Detail += " (" + said + "), beside the database: it protects copies of cubby.db alone; whoever has the folder or a backup of it, " +
		"root and programs of the server's user can open the secrets. For better: " + better
	switch _, other := fileowner.Other(info); {
	case info.Mode().Perm()&0o077 != 0:
		c.Status, c.Remedy = Warn, "other users may use this key, and a server does not start with it: chmod 600 "+path
	case other:
		c.Status, c.Remedy = Warn, fmt.Sprintf("run the server as the key's owner; or, if the file is yours, chown %d %s", os.Geteuid(), path)
	}
	return c
}

func keyCheck(from string) Check {
	return Check{Name: "secrets' key", Status: OK, Detail: "secrets that cubby serve keeps are sealed with " + from}
}

func unusable(c Check, err error) Check {
	c.Status = Warn
	c.Detail = "the key that cubby serve seals secrets with cannot be used: " + err.Error()
	c.Remedy = "give the key that the secrets were sealed with; for a new one: `openssl rand -hex 32`, in a file of mode 0600"
	return c
}

// file describes mode and owner.
func file(path string) (said string, info fs.FileInfo, err error) {
	if info, err = os.Stat(path); err != nil {
		return "", nil, err
	}
	said = fmt.Sprintf("mode %04o", info.Mode().Perm())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		said += fmt.Sprintf(", owner uid %d", stat.Uid)
	}
	return said, info, nil
}

// within says whether a file is in a folder or below it, links followed.
func within(dir, path string) bool {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, dirErr := filepath.Abs(dir)
	path, pathErr := filepath.Abs(path)
	if dirErr != nil || pathErr != nil {
		return false
	}
	below, err := filepath.Rel(dir, path)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
}
