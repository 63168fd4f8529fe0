package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// public is a package that programs outside of this repository can import.
type public struct {
	options  []string // exported functions that return one
	examples bool
}

// packages reads the source of all modules: the public packages by folder, and every
// name that a test mentions.
func packages(t *testing.T) (found map[string]*public, tested map[string]bool) {
	t.Helper()
	const root = ".."
	found, tested = map[string]*public{}, map[string]bool{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		isTest := strings.HasSuffix(name, "_test.go")
		if isTest {
			ast.Inspect(file, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					tested[id.Name] = true
				}
				return true
			})
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil || !isPublic(dir) || file.Name.Name == "main" {
			return err
		}
		p := found[dir]
		if p == nil {
			p = &public{}
			found[dir] = p
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			switch {
			case !ok || f.Recv != nil || !f.Name.IsExported():
			case isTest && strings.HasPrefix(f.Name.Name, "Example"):
				p.examples = true
			case !isTest && returnsOption(f):
				p.options = append(p.options, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, tested
}

func isPublic(dir string) bool {
	parts := strings.Split(filepath.ToSlash(dir), "/")
	return parts[0] != "cmd" && parts[0] != "examples" && !slices.Contains(parts, "internal")
}

func returnsOption(f *ast.FuncDecl) bool {
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
		return false
	}
	name, ok := f.Type.Results.List[0].Type.(*ast.Ident)
	return ok && strings.HasSuffix(name.Name, "Option")
}

// TestEveryPackageHasAnExample: how a public package is used is shown by code that the
// compiler checks.
func TestEveryPackageHasAnExample(t *testing.T) {
	found, _ := packages(t)
	if found["."] == nil || found["embedded"] == nil {
		t.Fatalf("the module's own packages are not there: %v", found)
	}
	for dir, p := range found {
		if !p.examples {
			t.Errorf("package %s has no Example", dir)
		}
	}
}

// TestEveryOptionIsTested: an exported function that returns an option is named in a
// test, an Example for one.
func TestEveryOptionIsTested(t *testing.T) {
	found, tested := packages(t)
	n := 0
	for dir, p := range found {
		n += len(p.options)
		for _, name := range p.options {
			if !tested[name] {
				t.Errorf("no test names %s of package %s", name, dir)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d options found", n)
	}
}
