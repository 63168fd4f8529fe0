package workdir

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Bounds of patterns, which models write: matching one must not take long.
const (
	maxPatterns  = 100
	maxPattern   = 512 // bytes
	maxWildcards = 24  // in one pattern
	maxBraces    = 4   // groups in one pattern
)

// RecordFile is the workspace's record, which is never collected.
const RecordFile = "metadata.json"

// Patterns are globs below a workspace.
type Patterns struct {
	globs  []string
	record bool // the record's name means nothing here
}

// Everything are patterns that mean all files of a folder that is no workspace.
func Everything() Patterns { return Patterns{globs: []string{"**"}, record: true} }

var folderVariables = map[string]string{
	codeexec.EnvOutputDir:    codeexec.DirOut,
	codeexec.EnvWorkDir:      codeexec.DirWork,
	codeexec.EnvSkillsDir:    codeexec.DirSkills,
	codeexec.EnvRunDir:       codeexec.DirRuns,
	codeexec.EnvWorkspaceDir: ".",
}

// ParsePatterns reads globs: *, ?, [a-z], {a,b} and ** for any folders. A
// pattern may begin with one of the workspace's folders as a variable
// ($OUTPUT_DIR, ${WORK_DIR} …). A pattern that ends in a slash, and a folder's
// variable alone, mean all files below. What is malformed or leads outside is
// [codeexec.ErrBadPath].
func ParsePatterns(globs []string) (Patterns, error) {
	if len(globs) > maxPatterns {
		return Patterns{}, fmt.Errorf("%w: more than %d patterns", codeexec.ErrBadPath, maxPatterns)
	}
	var p Patterns
	for _, glob := range globs {
		clean, err := parsePattern(glob)
		if err != nil {
			return Patterns{}, fmt.Errorf("%w: pattern %.200q: %w", codeexec.ErrBadPath, glob, err)
		}
		p.globs = append(p.globs, clean)
	}
	return p, nil
}

func parsePattern(glob string) (string, error) {
	switch {
	case strings.TrimSpace(glob) == "":
		return "", errors.New("it is empty")
	case len(glob) > maxPattern:
		return "", fmt.Errorf("more than %d bytes", maxPattern)
	}
	p, all := strings.TrimSpace(glob), false
	if rest, ok := strings.CutPrefix(p, "$"); ok {
		name, after := rest, ""
		if braced, ok := strings.CutPrefix(rest, "{"); ok {
			if name, after, ok = strings.Cut(braced, "}"); !ok {
				return "", errors.New("a brace is not closed")
			}
		} else if at := strings.IndexByte(rest, '/'); at >= 0 {
			name, after = rest[:at], rest[at:]
		}
		dir, ok := folderVariables[name]
		if !ok || after != "" && after[0] != '/' {
			return "", fmt.Errorf("no folder is called $%s", name)
		}
		p, all = dir+after, strings.Trim(after, "/") == ""
	}
	if path.IsAbs(p) {
		return "", errors.New("it is an absolute path")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", errors.New("it leads outside")
		}
	}
	all = all || strings.HasSuffix(p, "/")
	p = path.Clean(p)
	if all {
		p = path.Join(p, "**")
	}
	switch {
	case strings.Count(p, "*")+strings.Count(p, "[")+strings.Count(p, "?") > maxWildcards:
		return "", fmt.Errorf("more than %d wildcards", maxWildcards)
	case strings.Count(p, "{") > maxBraces:
		return "", fmt.Errorf("more than %d groups in braces", maxBraces)
	case !doublestar.ValidatePattern(p):
		return "", errors.New("it is malformed")
	}
	return p, nil
}

// Match reports whether a file of this name is meant. The workspace's own
// record is not.
func (p Patterns) Match(name string) bool {
	if !p.record && (name == RecordFile || strings.HasPrefix(name, ".metadata.")) {
		return false
	}
	for _, g := range p.globs {
		if ok, err := doublestar.Match(g, name); err == nil && ok {
			return true
		}
	}
	return false
}

// Bases returns the folders below which everything lies that can match; "." is
// the workspace.
func (p Patterns) Bases() []string {
	var bases []string
	for _, g := range p.globs {
		base, rest := doublestar.SplitPattern(g)
		if !strings.ContainsAny(rest, "*?[{\\") {
			base = path.Join(base, rest) // a plain name
		}
		if base == "." {
			return []string{"."}
		}
		bases = append(bases, base)
	}
	// Without those that are below another one.
	var out []string
	for i, b := range bases {
		inside := false
		for j, other := range bases {
			if strings.HasPrefix(b, other+"/") || b == other && j < i {
				inside = true
				break
			}
		}
		if !inside {
			out = append(out, b)
		}
	}
	return out
}
