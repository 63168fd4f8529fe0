package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

const (
	scanDepth   = 3      // folders between a root and a skill, and the skill
	scanFolders = 20_000 // that are looked into for skills
	docDepth    = 8
)

// Folders is a [Repository] of folders on this machine.
type Folders struct {
	roots []string

	mu       sync.RWMutex
	skills   map[string]entry
	problems []Problem
}

type entry struct {
	summary Summary
	path    string
}

var _ Repository = (*Folders)(nil)

// NewFolders finds the skills in folders, at most three folders deep; a root may
// be a skill itself. Of two skills of a name the first root's counts. What looks
// like a skill and is none is among Problems, and no error; a root that cannot be
// read is one.
func NewFolders(roots ...string) (*Folders, error) {
	f := &Folders{}
	for _, root := range roots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, execerr.Wrap("open skills", cubby.CodeInvalidArgument, err)
		}
		f.roots = append(f.roots, abs)
	}
	return f, f.Refresh()
}

// Refresh looks for skills again.
func (f *Folders) Refresh() error {
	s := scan{skills: map[string]entry{}, left: scanFolders}
	for _, root := range f.roots {
		info, err := os.Stat(root)
		if err == nil && !info.IsDir() {
			err = invalid("%s is no folder", root)
		}
		if err != nil {
			return execerr.Wrap("open skills", cubby.CodeInvalidArgument, err)
		}
		s.folder(root, 0)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skills, f.problems = s.skills, s.problems
	return nil
}

// Problems returns what Refresh could not use.
func (f *Folders) Problems() []Problem {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.problems)
}

type scan struct {
	skills   map[string]entry
	problems []Problem
	left     int
}

func (s *scan) problem(path string, err error) {
	if len(s.problems) < 100 {
		s.problems = append(s.problems, Problem{path, err})
	}
}

func (s *scan) folder(dir string, depth int) {
	if s.left--; s.left < 0 {
		return
	}
	if _, err := os.Lstat(filepath.Join(dir, File)); err == nil {
		s.skill(dir)
		return // what is below belongs to it
	}
	if depth == scanDepth {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.problem(dir, err)
		return
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			s.folder(name, depth+1)
		case e.Type()&fs.ModeSymlink != 0:
			if _, err := os.Stat(filepath.Join(name, File)); err == nil {
				s.problem(name, errors.New("it is a link; name the folder that it leads to as a root"))
			}
		}
	}
}

func (s *scan) skill(dir string) {
	if len(s.skills) >= maxSkills {
		s.problem(dir, fmt.Errorf("more than %d skills", maxSkills))
		return
	}
	loaded, err := read(dir)
	if err != nil {
		s.problem(dir, err)
		return
	}
	if before, ok := s.skills[loaded.Name]; ok {
		s.problem(dir, fmt.Errorf("there is a skill %s already, in %s", loaded.Name, before.path))
		return
	}
	s.skills[loaded.Name] = entry{loaded.Summary, dir}
}

// read reads a folder's SKILL.md; the name is the folder's if it says none.
func read(dir string) (*Skill, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	b, err := readFile(root, File, MaxFile)
	if err != nil {
		return nil, err
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	if s.Name == "" {
		s.Name = filepath.Base(dir)
	}
	return s, checkName(s.Name)
}

// readFile reads a file of a skill, which may be a link inside it.
func readFile(root *os.Root, name string, most int64) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	// Asked before it is opened: a pipe would wait for who writes to it.
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s", name, workdir.Kind(info.Mode()))
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return b, err
}

// Summaries implements [Repository].
func (f *Folders) Summaries() []Summary {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make([]Summary, 0, len(f.skills))
	for _, e := range f.skills {
		all = append(all, e.summary)
	}
	slices.SortFunc(all, func(a, b Summary) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Path implements [Repository].
func (f *Folders) Path(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	e, ok := f.skills[name]
	if !ok {
		return "", notFound("no skill is called %s", name)
	}
	return e.path, nil
}

// Get implements [Repository]. It reads the skill as it is now.
func (f *Folders) Get(name string) (*Skill, error) {
	const op = "load skill"
	dir, err := f.Path(name)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	s, err := read(dir)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	s.Name = name
	if s.Docs, err = docs(dir); err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	return s, nil
}

// docExtensions are those of text for people and models.
var docExtensions = map[string]bool{".md": true, ".mdx": true, ".markdown": true, ".txt": true, ".rst": true, ".adoc": true}

func isDoc(name string) bool { return docExtensions[strings.ToLower(path.Ext(name))] && name != File }

// docs lists a skill's documents. Links are not followed.
func docs(dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var list []string
	seen := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if seen++; seen > maxFiles || len(list) == MaxDocs {
			return fs.SkipAll
		}
		if err != nil {
			return fs.SkipDir // what cannot be read has no documents
		}
		if e.IsDir() && name != "." && (strings.HasPrefix(e.Name(), ".") || strings.Count(name, "/") >= docDepth) {
			return fs.SkipDir
		}
		if e.Type().IsRegular() && isDoc(name) && workdir.CheckName(name) == nil {
			list = append(list, name)
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}

// Doc implements [Repository].
func (f *Folders) Doc(name, doc string) (string, error) {
	const op = "read document"
	dir, err := f.Path(name)
	if err != nil {
		return "", execerr.Wrap(op, cubby.CodeInternal, err)
	}
	clean, err := workdir.CleanFile(doc)
	if err == nil && !isDoc(clean) {
		err = invalid("%.100q is no document of a skill", doc)
	}
	if err != nil {
		return "", execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer root.Close()
	b, err := readFile(root, clean, MaxDoc)
	if err != nil {
		return "", execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	if !utf8.Valid(b) {
		return "", execerr.Wrap(op, cubby.CodeInvalidArgument, errNoText)
	}
	return strings.ReplaceAll(strings.TrimPrefix(string(b), "\uFEFF"), "\r\n", "\n"), nil
}

// fingerprint tells whether a skill's folder is what it was: a hash of names,
// modes, sizes and contents. It refuses folders that are too large to stage.
func fingerprint(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	sum := sha256.New()
	files, left := 0, int64(MaxFolder)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if files++; files > maxFiles {
			return invalid("the skill has more than %d files", maxFiles)
		}
		fmt.Fprintf(sum, "%d:%s %v\n", len(name), name, e.Type())
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := root.Readlink(name)
			fmt.Fprintf(sum, "%d:%s\n", len(to), to)
			return err
		}
		if !e.Type().IsRegular() {
			return nil // whether that is allowed, who stages it says
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%v %d\n", info.Mode(), info.Size())
		n, err := io.Copy(sum, io.LimitReader(f, left+1))
		if left -= n; err == nil && left < 0 {
			err = invalid("the skill has more than %d bytes", MaxFolder)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
