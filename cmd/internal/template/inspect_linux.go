package template

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Report is what an interpreter says about itself.
type Report struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	// Modules maps those of IPython, numpy, pandas, matplotlib and PIL that are
	// installed to their versions. Only Python has modules.
	Modules map[string]string `json:"modules,omitempty"`
}

// Modules are those that Inspect looks for, in the order of their use to people.
var Modules = []string{"IPython", "numpy", "pandas", "matplotlib", "PIL"}

// inspectPython finds distributions without importing them: importing pandas
// alone takes half a second.
const inspectPython = `
import sys, json
from importlib import metadata, util
found = {}
for module, distribution in (("IPython", "ipython"), ("numpy",) * 2, ("pandas",) * 2, ("matplotlib",) * 2, ("PIL", "pillow")):
    try:
        if util.find_spec(module) is None:
            continue
    except Exception:
        continue
    try:
        found[module] = metadata.version(distribution)
    except Exception:
        found[module] = "unknown version"
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "modules": found}))
`

var versionText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9A-Za-z.()+_ -]{1,60}$`)
})

// Inspect runs a host interpreter to learn its version and modules. It takes up
// to some hundred milliseconds, at most five seconds; the interpreter gets no
// environment of ours and does not see the user's own site-packages, as in a
// sandbox.
func Inspect(ctx context.Context, in Interpreter) (Report, error) {
	if in.Path == "" {
		return Report{}, fmt.Errorf("%s", in.Missing)
	}
	r := Report{Path: in.Path}
	var args []string
	switch base := filepath.Base(in.Path); {
	case bash.real.MatchString(base):
		args = []string{"--norc", "--noprofile", "-c", `echo "$BASH_VERSION"`}
	case node.real.MatchString(base):
		args = []string{"--version"}
	default:
		args = []string{"-I", "-c", inspectPython}
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C.UTF-8"}
	out, err := runBounded(ctx, env, in.Path, args...)
	if err != nil {
		return r, fmt.Errorf("running %s: %w", in.Path, err)
	}
	text := strings.TrimSpace(string(out))
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return r, fmt.Errorf("running %s: %w", in.Path, err)
		}
		r.Path = in.Path
	} else {
		r.Version = strings.TrimPrefix(text, "v")
	}
	if !versionText().MatchString(r.Version) {
		return r, fmt.Errorf("running %s: strange version %.100q", in.Path, text)
	}
	return r, nil
}
