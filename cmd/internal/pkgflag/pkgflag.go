// Package pkgflag reads the flags about packages that are installed in a sandbox, which
// several commands have.
package pkgflag

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
)

// maxFile bounds a file of requirements, in bytes.
const maxFile = 1 << 20

// Flags are the flags.
type Flags struct {
	pip, npm, files []string
	build           bool
}

// Register adds the flags to a command.
func (f *Flags) Register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.pip, "pip", nil, "install a `PACKAGE` of PyPI first, such as 'requests>=2.31'; repeatable")
	fl.StringArrayVarP(&f.files, "requirements", "r", nil,
		"install the packages of a requirements `FILE`, or of a script that names its own; repeatable")
	fl.StringArrayVar(&f.npm, "npm", nil, "install a `PACKAGE` of npm first, such as left-pad@1; repeatable")
	fl.BoolVar(&f.build, "build", false, "let packages run code of their own while they are installed")
	for _, name := range []string{"pip", "npm"} {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions); err != nil {
			panic(err) // a flag that is not there
		}
	}
}

// Given names one of the flags that were given, or is empty.
func (f *Flags) Given(changed func(string) bool) string {
	for _, name := range []string{"pip", "requirements", "npm", "build"} {
		if changed(name) {
			return name
		}
	}
	return ""
}

// Packages reads the files and checks all names.
func (f *Flags) Packages() (cubby.Packages, error) {
	p := cubby.Packages{Pip: f.pip, Npm: f.npm, Build: f.build}
	if err := p.Check(); err != nil {
		return cubby.Packages{}, flagError(err)
	}
	for _, name := range f.files {
		list, err := read(name)
		if err == nil {
			err = (cubby.Packages{Pip: list}).Check()
		}
		if err != nil {
			return cubby.Packages{}, fmt.Errorf("-r %s: %w", name, withoutField(err))
		}
		p.Pip = append(p.Pip[:len(p.Pip):len(p.Pip)], list...)
	}
	if f.build && len(p.Pip)+len(p.Npm) == 0 {
		return cubby.Packages{}, errors.New("--build is about packages: it goes with --pip, --npm or -r")
	}
	return p, nil
}

var field = strings.NewReplacer("Packages.Pip: ", "--pip ", "Packages.Npm: ", "--npm ", "Packages.Pip has", "--pip has", "Packages.Npm has", "--npm has")

// flagError names flags where the library names fields.
func flagError(err error) error { return changed(err, field.Replace) }

func withoutField(err error) error {
	return changed(err, func(s string) string { return strings.TrimPrefix(s, "Packages.Pip: ") })
}

func changed(err error, change func(string) string) error {
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		return &cubby.Error{Code: e.Code, Err: errors.New(change(e.Err.Error())), Hint: e.Hint}
	}
	return errors.New(change(err.Error()))
}

// read returns the requirements of a file: a list for pip's -r, or a Python script with
// a list of its own (PEP 723).
func read(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	case bytes.IndexByte(text, 0) >= 0:
		return nil, errors.New("it is no text")
	}
	clean := strings.ReplaceAll(strings.TrimPrefix(string(text), "\ufeff"), "\r\n", "\n")
	if list, found, err := scriptList(clean); found || err != nil {
		return list, err
	}
	if strings.HasSuffix(name, ".py") {
		return nil, errors.New("the script does not name its packages: it has no block that begins with # /// script")
	}
	return requirements(clean)
}

// requirements reads what pip's -r reads, but for its options.
func requirements(text string) ([]string, error) {
	var list []string
	text = strings.ReplaceAll(text, "\\\n", " ") // a line that goes on
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(comment.ReplaceAllString(strings.TrimRight(line, "\n"), ""))
		switch {
		case line == "":
		case strings.HasPrefix(line, "-"):
			return nil, fmt.Errorf("%q: it is an option of pip's: only packages are taken, one a line", line)
		default:
			list = append(list, line)
		}
	}
	return list, nil
}

var comment = regexp.MustCompile(`(^|\s)#.*$`)

// scriptBlock is the pattern of PEP 723.
var scriptBlock = regexp.MustCompile(`(?m)^# /// script[ \t]*$\n((?:^#(?:| .*)$\n)+?)^# ///[ \t]*$`)

// scriptList returns the dependencies that a script names in a block of its own.
func scriptList(text string) (list []string, found bool, err error) {
	blocks := scriptBlock.FindAllStringSubmatch(text+"\n", 2)
	switch len(blocks) {
	case 0:
		return nil, false, nil
	case 1:
	default:
		return nil, true, errors.New("the script has two blocks that begin with # /// script")
	}
	var content strings.Builder
	for line := range strings.Lines(blocks[0][1]) {
		content.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	var script struct {
		Dependencies []string `toml:"dependencies"`
	}
	if _, err := toml.Decode(content.String(), &script); err != nil {
		return nil, true, fmt.Errorf("the block that begins with # /// script: %w", err)
	}
	return script.Dependencies, true, nil
}
