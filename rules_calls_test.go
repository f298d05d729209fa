package warmpath_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ban forbids members of an imported package.
type ban struct {
	importPath string
	members    *regexp.Regexp
	reason     string
	remedy     string
	applies    func(*source) bool
}

// library reports whether a file is product code that is no command: it must
// not decide where text goes or when the process ends.
func library(s *source) bool { return !s.test && !under(s.folder, "cmd") }

var bans = []ban{
	{
		importPath: "os", members: regexp.MustCompile(`^(Getenv|LookupEnv|Environ|ExpandEnv)$`),
		reason: "there is one place to see what can be configured",
		remedy: "read it in controlplane/config and pass the value",
		applies: func(s *source) bool {
			return !under(s.folder, "controlplane/config")
		},
	},
	{
		importPath: "time", members: regexp.MustCompile(`^Sleep$`),
		reason:  "tests that sleep are slow and fail by chance",
		remedy:  "use testing/synctest, a channel, or a condition to wait for",
		applies: func(s *source) bool { return s.test },
	},
	{
		importPath: "sync/atomic", members: regexp.MustCompile(`^(Add|And|Or|CompareAndSwap|Load|Store|Swap)(Int32|Int64|Uint32|Uint64|Uintptr|Pointer)$`),
		reason:  "a plain variable can be read without its atomic by mistake",
		remedy:  "use the typed atomics: atomic.Int64, atomic.Pointer[T] …",
		applies: func(*source) bool { return true },
	},
	{
		importPath: "fmt", members: regexp.MustCompile(`^Print(f|ln)?$`),
		reason:  "a library does not own standard output",
		remedy:  "take an io.Writer, or log with slog",
		applies: library,
	},
	{
		importPath: "log", members: regexp.MustCompile(`^(Print|Fatal|Panic|SetOutput)`),
		reason:  "all logs have levels and fields",
		remedy:  "use log/slog",
		applies: func(s *source) bool { return !s.test },
	},
	{
		importPath: "os", members: regexp.MustCompile(`^Exit$`),
		reason:  "a library does not end the process",
		remedy:  "return an error",
		applies: library,
	},
	{
		importPath: "context", members: regexp.MustCompile(`^TODO$`),
		reason:  "work without an end cannot be stopped",
		remedy:  "take a context from the caller",
		applies: func(*source) bool { return true },
	},
}

func TestBannedCalls(t *testing.T) {
	for _, s := range sources(t) {
		for i := range bans {
			b := &bans[i]
			if !b.applies(s) {
				continue
			}
			callees(s, b.importPath, func(member string, p token.Pos) {
				if b.members.MatchString(member) {
					t.Errorf("%s uses %s.%s: %s; %s", s.at(p), b.importPath, member, b.reason, b.remedy)
				}
			})
		}
	}
}

// TestPanicsAreBugs lets libraries panic for programming errors only.
func TestPanicsAreBugs(t *testing.T) {
	for _, s := range product(t) {
		if s.generated || !library(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" && !namesBug(call.Args) && !abortsHandler(call.Args[0]) {
				t.Errorf("%s panics without the prefix \"BUG:\": operational errors are returned, programming errors panic with it", s.at(call.Pos()))
			}
			return true
		})
	}
}

// namesBug reports whether the first string literal in the arguments begins
// with BUG:, whatever builds the message around it.
func namesBug(args []ast.Expr) bool {
	var first string
	for _, arg := range args {
		ast.Inspect(arg, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if ok && literal.Kind == token.STRING && first == "" {
				first, _ = strconv.Unquote(literal.Value)
			}
			return first == ""
		})
	}
	return strings.HasPrefix(first, "BUG:")
}

// abortsHandler reports whether the argument is http.ErrAbortHandler: net/http
// has no other way to cut a connection inside an answer.
func abortsHandler(arg ast.Expr) bool {
	selector, ok := arg.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "ErrAbortHandler"
}

// TestFunctionsFitAScreen bounds functions of the data plane.
func TestFunctionsFitAScreen(t *testing.T) {
	const most = 70
	for _, s := range product(t) {
		if s.generated || !under(s.folder, "dataplane") {
			continue
		}
		for _, declaration := range s.file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; lines > most {
				t.Errorf("%s: %s has %d lines: a hot path is read at a glance; split it to %d or less", s.at(f.Pos()), f.Name.Name, lines, most)
			}
		}
	}
}

// TestEveryPackageHasDoc wants a doc.go that says what the package owns.
func TestEveryPackageHasDoc(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range product(t) {
		documented[s.folder] = documented[s.folder] || strings.HasSuffix(s.path, "/doc.go") && s.file.Doc.Text() != ""
	}
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s has no doc.go with a package comment: say what it owns, what it may assume and what it never does", folder)
		}
	}
}

func TestBugPrefixIsFound(t *testing.T) {
	literal := func(text string) ast.Expr { return &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(text)} }
	sprintf := &ast.CallExpr{Fun: ast.NewIdent("Sprintf"), Args: []ast.Expr{literal("BUG: %d")}}
	if !namesBug([]ast.Expr{literal("BUG: x")}) || !namesBug([]ast.Expr{sprintf}) {
		t.Error("a panic with the prefix was refused")
	}
	if namesBug([]ast.Expr{literal("no")}) || namesBug([]ast.Expr{ast.NewIdent("err")}) {
		t.Error("a panic without the prefix was accepted")
	}
}

// TestInFlightHasOnePlace finds changes of the counters of what is in flight
// that the loops' check of them would not know of, so that they never healed.
func TestInFlightHasOnePlace(t *testing.T) {
	const place = "dataplane/inflight.go"
	counters, changes := []string{"Requests", "PrefillTokens", "TotalTokens"}, []string{"Add", "Store", "Swap", "CompareAndSwap"}
	found := 0
	for _, s := range product(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(changes, method.Sel.Name) {
				return true
			}
			if counter, ok := method.X.(*ast.SelectorExpr); ok && slices.Contains(counters, counter.Sel.Name) {
				if found++; s.path != place {
					t.Errorf("%s changes %s: what a loop does not know that it has raised cannot heal; go through exchange.raise and settle in %s", s.at(call.Pos()), counter.Sel.Name, place)
				}
			}
			return true
		})
	}
	if found != len(counters) {
		t.Errorf("%d changes were found, want one of each counter, in %s", found, place)
	}
}

// TestToolsArePinned keeps the linters in go.mod, where their versions are
// committed.
func TestToolsArePinned(t *testing.T) {
	tools := []string{"honnef.co/go/tools/cmd/staticcheck", "mvdan.cc/gofumpt"}
	lines := strings.Fields(readFile(t, "go.mod"))
	for _, tool := range tools {
		if !slices.Contains(lines, tool) {
			t.Errorf("go.mod has no tool %s: lint needs it; run `go get -tool` with an exact version", tool)
		}
	}
}

// TestAllocationTestsAreNamed finds allocation tests that make test would
// never run: the race detector hides allocations, so that `make allocs` runs
// the tests whose names contain Alloc without it.
func TestAllocationTestsAreNamed(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, declaration := range s.file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || strings.Contains(f.Name.Name, "Alloc") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "AllocsPerRun" {
					t.Errorf("%s: %s calls AllocsPerRun: make allocs selects tests by name; put Alloc into it, and into the tests that call it", s.at(f.Pos()), f.Name.Name)
				}
				return true
			})
		}
	}
}
