// Package version names builds of Cubby. The command, its child process and
// the guest inside a sandbox refuse to work with one of another build.
package version

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/internal"
)

// Version is Cubby's semantic version: a constant, not a link-time stamp, keeps
// `go build`, `go install` and `make` in agreement.
const Version = "0.2.0"

// Build is the version with a hash of what Cubby's processes say to each other,
// such as "0.1.0+5f3a9c0b". Builds that understand each other have the same
// one, however they were built. See
// RATIONALE.md, "How do two processes know that they are of the same build?".
var Build = sync.OnceValue(func() string { return Of(internal.Contract) })

// Of is the version with a hash of the names and contents of the files, but for
// tests. It tells builds apart that were made in good faith, and is computed at
// each start of a sandbox: a checksum in hardware takes microseconds.
func Of(contracts ...fs.FS) string {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, files := range contracts {
		add(sum, files)
	}
	return fmt.Sprintf("%s+%08x", Version, sum.Sum32())
}

func add(sum io.Writer, files fs.FS) {
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		// A clone may have been made with the line ends of another system.
		content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
		fmt.Fprintf(sum, "%s %d\n", path, len(content))
		sum.Write(content)
		return nil
	})
	if err != nil {
		panic("version: files in the program itself cannot be read: " + err.Error())
	}
}

// Source is the revision that this program was built from, with a + where files
// were changed since; empty where the build does not tell, as that of the engine does
// not, so that its hash is not another one with each commit. It is for people: a
// build of a changed tree cannot be told from another by it.
func Source() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value[:min(len(setting.Value), 12)]
		case "vcs.modified":
			if setting.Value == "true" {
				changed = "+"
			}
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

// Line is what a program prints when it is asked for its version.
func Line(program string) string {
	source := ""
	if s := Source(); s != "" {
		source = " source " + s
	}
	return fmt.Sprintf("%s %s%s %s %s/%s\n", program, Build(), source, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Differ says of two builds how they differ, in words for whoever installed them;
// empty if they do not.
func Differ(ours, theirs string) string {
	a, _, _ := strings.Cut(ours, "+")
	b, _, _ := strings.Cut(theirs, "+")
	switch {
	case ours == theirs:
		return ""
	case a == b:
		return "both are version " + a + ", but built of different sources (" + ours + ", " + theirs + ")"
	}
	return "one is version " + a + ", the other " + b
}
