// Package warmpath_test checks the rules that hold for the whole tree. Each
// rule says why it exists and what to do instead.
package warmpath_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "warmpath"

// source is one Go file of the tree.
type source struct {
	path      string // relative to the root, with slashes
	folder    string // "." for the root
	test      bool
	generated bool
	lines     int
	text      string
	file      *ast.File
	fset      *token.FileSet
}

// at names a place for an error message.
func (s *source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(p).Line)
}

// imports returns the paths that the file imports.
func (s *source) imports() []string {
	paths := make([]string, len(s.file.Imports))
	for i, spec := range s.file.Imports {
		paths[i], _ = strconv.Unquote(spec.Path.Value) // the parser has checked it
	}
	return paths
}

// importName returns the name by which the file calls an import, "" if it
// does not import it.
func (s *source) importName(importPath string) string {
	for _, spec := range s.file.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// skippedFolders hold nothing that is ours: caches, build products.
var skippedFolders = []string{".git", ".cache", "bin", "node_modules", "vendor"}

// walk calls visit for each file of the tree, paths relative to the root.
func walk(t *testing.T, visit func(p string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skippedFolders, d.Name()):
			return fs.SkipDir
		case !d.IsDir():
			visit(p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var parseOnce = sync.OnceValues(parseTree)

// sources parses every Go file of the tree, once.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := parseOnce()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parseTree() ([]*source, error) {
	var all []*source
	fset := token.NewFileSet()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(skippedFolders, d.Name()) || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ".go":
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, &source{
			path: p, folder: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), generated: ast.IsGenerated(file),
			lines: strings.Count(string(text), "\n"), text: string(text), file: file, fset: fset,
		})
		return nil
	})
	return all, err
}

// product returns the sources that are part of a program or library of ours.
func product(t *testing.T) []*source {
	return slices.DeleteFunc(slices.Clone(sources(t)), func(s *source) bool { return s.test })
}

// under reports whether folder is one of the roots or lies below one.
func under(folder string, roots ...string) bool {
	for _, root := range roots {
		if folder == root || strings.HasPrefix(folder, root+"/") {
			return true
		}
	}
	return false
}

// ours returns the folder of an import of this module.
func ours(importPath string) (folder string, ok bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// callees visits each use of name.Member in the file, where name is how the
// file calls importPath.
func callees(s *source, importPath string, visit func(member string, p token.Pos)) {
	name := s.importName(importPath)
	if name == "" || name == "_" {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if base, ok := selector.X.(*ast.Ident); ok && base.Name == name {
			visit(selector.Sel.Name, selector.Pos())
		}
		return true
	})
}
