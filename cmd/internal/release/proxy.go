package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// publish writes the module in folder dir of tree to proxy
// (https://go.dev/ref/mod#goproxy-protocol) and returns its lines for a go.sum.
func publish(tree, dir string, m module.Version, proxy string) ([]string, error) {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return nil, err
	}
	versions := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return nil, err
	}
	gomod, err := os.ReadFile(filepath.Join(tree, dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	info, err := json.Marshal(struct{ Version string }{m.Version})
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": gomod} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	archive := filepath.Join(versions, m.Version+".zip")
	if err := writeZip(archive, tree, dir, m); err != nil {
		return nil, err
	}
	ofModule, err := dirhash.HashZip(archive, dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	ofMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(gomod)), nil
	})
	if err != nil {
		return nil, err
	}
	return []string{
		m.Path + " " + m.Version + " " + ofModule,
		m.Path + " " + m.Version + "/go.mod " + ofMod,
	}, nil
}

// writeZip writes the module as the go command would make it of a tag of the
// working tree: the files that git knows or would add, and the repository's
// license in modules without one.
func writeZip(name, tree, dir string, m module.Version) (err error) {
	tmp, err := os.MkdirTemp("", "cubby-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	restore, err := apart(tree, tmp)
	if err != nil {
		return err
	}
	defer restore()
	if _, err := git(tree, "add", "--all", "."); err != nil {
		return err
	}
	object, err := git(tree, "write-tree")
	if err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	subdir := dir
	if dir == "." {
		subdir = ""
	}
	return zip.CreateFromVCS(f, m, tree, object, subdir)
}

// apart has git keep index and new objects in tmp: the repository's own are not
// touched. It sets the environment of this process, from which x/mod runs git,
// too, until restore is called.
func apart(tree, tmp string) (restore func(), err error) {
	objects, err := git(tree, "rev-parse", "--path-format=absolute", "--git-path", "objects")
	if err != nil {
		return nil, err
	}
	added := filepath.Join(tmp, "objects")
	if err := os.Mkdir(added, 0o755); err != nil {
		return nil, err
	}
	var undo []func()
	for key, value := range map[string]string{
		"GIT_INDEX_FILE":                   filepath.Join(tmp, "index"),
		"GIT_OBJECT_DIRECTORY":             added,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
	} {
		if was, ok := os.LookupEnv(key); ok {
			undo = append(undo, func() { os.Setenv(key, was) })
		} else {
			undo = append(undo, func() { os.Unsetenv(key) })
		}
		if err := os.Setenv(key, value); err != nil {
			return nil, err
		}
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}, nil
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
