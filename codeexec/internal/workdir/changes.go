package workdir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Seen is a regular file in a listing of a folder, by its own name.
type Seen struct {
	Name  string // below the folder
	Size  int64  // bytes
	Stamp string // is another one when the file was written to or replaced
}

// Changes finds the files of a folder that executions are asked to collect (see
// [codeexec.CodeExecutionInput]). It is used by one goroutine at a time.
type Changes struct {
	globs  []string
	before map[string]Seen
	blind  bool // what was there before is not known
}

// NewChanges reads the patterns. It returns nil if there are none.
func NewChanges(globs []string) (*Changes, error) {
	if len(globs) == 0 {
		return nil, nil
	}
	for _, g := range globs {
		if strings.HasPrefix(strings.TrimSpace(g), "$") {
			err := fmt.Errorf("%w: pattern %.200q: it must be relative to the working directory", codeexec.ErrBadPath, g)
			return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
		}
	}
	p, err := ParsePatterns(globs)
	if err != nil {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	return &Changes{globs: p.globs}, nil
}

// Depth is how many levels of folders are to be listed.
func (c *Changes) Depth() int {
	depth := 1
	for _, g := range c.globs {
		if strings.Contains(g, "**") {
			return maxDepth
		}
		depth = max(depth, strings.Count(g, "/")+1)
	}
	return min(depth, maxDepth)
}

// Begin takes the listing before anything ran. all is false if it is a part.
func (c *Changes) Begin(files []Seen, all bool) {
	c.blind = !all
	c.before = make(map[string]Seen, len(files))
	for _, f := range files {
		c.before[f.Name] = f
	}
}

// Since returns what a later listing has that is meant and was not so before, in
// order of the names. all is false if there may be more: names that are not safe,
// or nothing to compare with.
func (c *Changes) Since(files []Seen) (changed []Seen, all bool) {
	if c.blind {
		return nil, false
	}
	all = true
	for _, f := range files {
		was, ok := c.before[f.Name]
		switch {
		case ok && was == f, !c.match(f.Name):
		case CheckName(f.Name) != nil:
			all = false
		default:
			changed = append(changed, f)
		}
	}
	slices.SortFunc(changed, func(a, b Seen) int { return strings.Compare(a.Name, b.Name) })
	return changed, all
}

// match reports whether a pattern means a file. Wildcards do not mean what
// programs leave for themselves: hidden files and Python's caches.
func (c *Changes) match(name string) bool {
	hidden := private(name)
	for _, g := range c.globs {
		if hidden && !private(g) {
			continue
		}
		if ok, err := doublestar.Match(g, name); err == nil && ok {
			return true
		}
	}
	return false
}

func private(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "__pycache__" || strings.HasPrefix(part, ".") {
			return true
		}
	}
	return false
}
