// Package offline has what programs in a sandbox that install packages are told of
// registries that its network does not reach: files that a sandbox begins with, as one
// whose network is closed, and that its guest changes when it is told otherwise.
package offline

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Registries are those whose programs are told, by their names as presets of rules.
var Registries = []string{"pypi", "npm", "debian"}

const (
	// NetworkFile names on its first line the registries that are not reached, with
	// blanks between them; on its second is a sentence for whoever wanted one. It is
	// there while there are any.
	NetworkFile = "/etc/cubby/network"
	// PipFile is a configuration of pip's that holds for every form in which pip is
	// called, beside the template's own.
	PipFile = "/etc/xdg/pip/pip.conf"
	// NpmFile is npm's, for the variable NPM_CONFIG_GLOBALCONFIG.
	NpmFile = "/etc/cubby/npmrc"
)

const (
	allClosed = "The network of this sandbox is closed: nothing can be downloaded. " +
		"Use what is installed, or install from files that are in the sandbox."
	someClosed = "The network of this sandbox does not reach this registry. " +
		"Use what is installed, or install from files that are in the sandbox."
)

// Files are the files that there are while these registries are not reached: their
// content by their paths. Others of [Paths] are not there. Where a registry is not
// reached, its programs ask once and give up.
func Files(registries []string) map[string]string {
	files := map[string]string{NpmFile: "fund=false\nupdate-notifier=false\n"}
	if slices.Contains(registries, "npm") {
		files[NpmFile] += "fetch-retries=0\naudit=false\n"
	}
	if slices.Contains(registries, "pypi") {
		files[PipFile] = "[global]\nretries = 0\n"
	}
	if len(registries) > 0 {
		words := allClosed
		if len(registries) < len(Registries) {
			words = someClosed
		}
		files[NetworkFile] = strings.Join(registries, " ") + "\n" + words + "\n"
	}
	return files
}

// Paths are the paths of all files.
var Paths = []string{NetworkFile, PipFile, NpmFile}

// Change makes the files of one list those of another. A nil list is what a machine
// begins with: all of [Registries]. Code of the sandbox that is root may have changed
// them: what it removed is made again only where its content is to be another one, and
// what is to go stays where it is not ours any more. A machine may also begin with what
// was written in another: there the files of the list before are gone already.
func Change(from, to []string) error {
	if from == nil {
		from = Registries
	}
	if to == nil {
		to = Registries
	}
	before, after := Files(from), Files(to)
	var errs []error
	for _, path := range Paths {
		was, had := before[path]
		text, has := after[path]
		switch {
		case has && (!had || was != text):
			errs = append(errs, replace(path, text))
		case had && !has:
			errs = append(errs, remove(path, was))
		}
	}
	return errors.Join(errs...)
}

// remove removes a file if text is what it has.
func remove(path, text string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!st.Mode().IsRegular() || st.Size() != int64(len(text))) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return err
	}
	defer f.Close()
	now := make([]byte, len(text))
	if _, err := io.ReadFull(f, now); err != nil || string(now) != text {
		return nil
	}
	return os.Remove(path)
}

// replace writes a new file: what stands at its path may be a link that code made.
func replace(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
