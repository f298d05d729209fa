package warmpath_test

import (
	"slices"
	"strings"
	"testing"
)

// importRule forbids direct imports of non-test files.
type importRule struct {
	name   string
	reason string
	remedy string
	// applies says which folders the rule is about.
	applies func(folder string) bool
	// forbids says which imports those folders must not have.
	forbids func(folder, importPath string) bool
}

var pureStages = []string{
	"dataplane/wire", "dataplane/scan", "dataplane/chat", "dataplane/tokenize", "dataplane/prefix", "dataplane/policy",
}

var importRules = []importRule{
	{
		name:    "dataplane stands alone",
		reason:  "a request must be served when control plane, scaler and kernel programs are dead",
		remedy:  "let the control plane put what is needed into the fleet snapshot",
		applies: func(folder string) bool { return under(folder, "dataplane") },
		forbids: func(_, p string) bool {
			folder, ok := ours(p)
			return ok && under(folder, "controlplane", "scaler", "bpf", "kubeclient")
		},
	},
	{
		name:   "pure stages",
		reason: "what does no I/O and reads no clock can be fuzzed and replayed",
		remedy: "pass bytes, time and randomness in as arguments",
		applies: func(folder string) bool {
			return under(folder, pureStages...) && !under(folder, "dataplane/tokenize/hf")
		},
		forbids: func(_, p string) bool {
			return p == "time" || p == "net" || strings.HasPrefix(p, "net/") || strings.HasPrefix(p, "github.com/panjf2000/gnet")
		},
	},
	{
		name:    "index depends on prefix and fleet only",
		reason:  "its proof must depend on nothing else",
		remedy:  "define what it needs in the index itself or in dataplane/prefix",
		applies: func(folder string) bool { return under(folder, "dataplane/index") },
		forbids: func(_, p string) bool {
			folder, ok := ours(p)
			return ok && !slices.Contains([]string{"dataplane/prefix", "dataplane/fleet", "dataplane/index"}, folder)
		},
	},
	{
		name:   "bpf stays at the rim",
		reason: "the router must build and run without eBPF",
		remedy: "go through controlplane/kernel or controlplane/guard",
		applies: func(folder string) bool {
			return !under(folder, "controlplane/kernel", "controlplane/guard", "controlplane/agent", "bench", "bpf")
		},
		forbids: func(_, p string) bool {
			folder, ok := ours(p)
			return ok && under(folder, "bpf")
		},
	},
	{
		name:    "scaler stands alone",
		reason:  "the control law must be testable in a microsecond",
		remedy:  "give the scaler plain numbers",
		applies: func(folder string) bool { return under(folder, "scaler") },
		forbids: func(from, p string) bool {
			folder, ok := ours(p)
			// The actuator shares its client with discovery. It is no part of the law.
			client := folder == "kubeclient" && from == "scaler/actuate/kubernetes"
			return ok && !under(folder, "scaler") && !client
		},
	},
	{
		name:    "kubeclient is a leaf",
		reason:  "the scaler's actuator and the control plane's discovery share it, and neither may reach the other through it",
		remedy:  "pass what it needs in as an argument",
		applies: func(folder string) bool { return under(folder, "kubeclient") },
		forbids: func(_, p string) bool {
			_, ok := ours(p)
			return ok
		},
	},
	{
		name:    "no clientset of Kubernetes",
		reason:  "it registers every kind there is at start: 16 MB of binary and 9 MB of resident memory, in every process",
		remedy:  "use kubeclient, and add the kind there",
		applies: func(string) bool { return true },
		forbids: func(_, p string) bool {
			return under(p, "k8s.io/client-go/kubernetes", "k8s.io/client-go/gentype", "k8s.io/client-go/dynamic", "k8s.io/client-go/informers")
		},
	},
	{
		name:    "measuring tools stay outside",
		reason:  "they must not leak into the product",
		remedy:  "start enginesim as a program, or move the code out of bench",
		applies: func(folder string) bool { return !under(folder, "bench", "cmd/enginesim", "cmd/warmbench") },
		forbids: func(_, p string) bool {
			folder, ok := ours(p)
			return ok && under(folder, "bench")
		},
	},
	{
		name:    "nobody imports a command",
		reason:  "a command is the end of the chain",
		remedy:  "move shared code into a package of its own",
		applies: func(string) bool { return true },
		forbids: func(folder, p string) bool {
			to, ok := ours(p)
			return ok && under(to, "cmd") && !under(to, folder)
		},
	},
}

func TestImportRules(t *testing.T) {
	for _, s := range product(t) {
		for _, p := range s.imports() {
			for i := range importRules {
				if r := &importRules[i]; r.applies(s.folder) && r.forbids(s.folder, p) {
					t.Errorf("%s imports %q against the rule %q: %s; %s", s.path, p, r.name, r.reason, r.remedy)
				}
			}
		}
	}
}

// TestImportRulesBite proves that each rule refuses what it is there for.
func TestImportRulesBite(t *testing.T) {
	for _, c := range []struct {
		folder, importPath, rule string
	}{
		{"dataplane/backend", "warmpath/controlplane/state", "dataplane stands alone"},
		{"dataplane/scan", "time", "pure stages"},
		{"dataplane/wire", "net/http", "pure stages"},
		{"dataplane/policy", "github.com/panjf2000/gnet/v2", "pure stages"},
		{"dataplane/tokenize/hf", "time", ""},
		{"dataplane/index", "warmpath/dataplane/policy", "index depends on prefix and fleet only"},
		{"dataplane/index", "warmpath/dataplane/prefix", ""},
		{"controlplane/state", "warmpath/bpf", "bpf stays at the rim"},
		{"controlplane/kernel", "warmpath/bpf", ""},
		{"controlplane/guard", "warmpath/bpf", ""},
		{"scaler", "warmpath/dataplane/fleet", "scaler stands alone"},
		{"scaler", "warmpath/scaler/actuate", ""},
		{"scaler", "warmpath/kubeclient", "scaler stands alone"},
		{"scaler/actuate/kubernetes", "warmpath/kubeclient", ""},
		{"dataplane", "warmpath/kubeclient", "dataplane stands alone"},
		{"kubeclient", "warmpath/scaler/actuate", "kubeclient is a leaf"},
		{"controlplane/discover/kube", "k8s.io/client-go/kubernetes/fake", "no clientset of Kubernetes"},
		{"controlplane/discover/kube", "k8s.io/client-go/tools/cache", ""},
		{"cmd/warmpath", "warmpath/bench/engine", "measuring tools stay outside"},
		{"cmd/warmbench", "warmpath/bench/proxy", ""},
		{"controlplane/admin", "warmpath/cmd/warmpath", "nobody imports a command"},
	} {
		var broken []string
		for i := range importRules {
			if r := &importRules[i]; r.applies(c.folder) && r.forbids(c.folder, c.importPath) {
				broken = append(broken, r.name)
			}
		}
		if got := strings.Join(broken, ", "); got != c.rule {
			t.Errorf("%s importing %s breaks %q, want %q", c.folder, c.importPath, got, c.rule)
		}
	}
}
