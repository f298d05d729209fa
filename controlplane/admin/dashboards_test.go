package admin_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// dashboard is what is checked of a Grafana dashboard.
type dashboard struct {
	Title         string
	SchemaVersion int `json:"schemaVersion"`
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ Type, UID string }
		GridPos    struct{ H, W, X, Y int } `json:"gridPos"`
		Targets    []struct {
			RefID      string `json:"refId"`
			Datasource struct{ Type, UID string }
			Expr       string
		}
	}
}

// alerts are rules as Prometheus reads them.
type alerts struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			For         string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../dashboards/warmpath.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.SchemaVersion < 38 || d.Templating.List[0].Type != "datasource" {
		t.Errorf("title %q, schema %d, variables %+v", d.Title, d.SchemaVersion, d.Templating.List)
	}
	var rows []string
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("%q lies over %q, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		for _, target := range p.Targets {
			checkExpression(t, p.Title, target.Expr)
			if p.Datasource.UID != "${datasource}" || target.Datasource.UID != "${datasource}" {
				t.Errorf("%q asks a data source of its own", p.Title)
			}
		}
		if len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
	}
	if want := []string{"Traffic", "Latency", "Nodes as the kernel sees them", "KV index", "Memory"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	checkNames(t, string(text))
}

func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../dashboards/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var a alerts
	if err := yaml.UnmarshalWithOptions(text, &a, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range a.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s: twice, or without severity, summary or description: %+v", r.Alert, r)
			}
			seen[r.Alert] = true
			checkExpression(t, r.Alert, r.Expr)
		}
	}
	checkNames(t, string(text))
}

var (
	seriesName = regexp.MustCompile(`warmpath_([a-z0-9_]+)`)
	selector   = regexp.MustCompile(`warmpath_([a-z0-9_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	bareTotal  = regexp.MustCompile(`(?:^|[^(]|[^e]\()warmpath_[a-z0-9_]+_total\b`) // not in rate( or increase(
)

// known finds a series among the metrics of this build: a histogram by its parts,
// anything else as it is.
func known(series string) (labels []string, ok bool) {
	all := maps.Clone(every)
	maps.Copy(all, everyOfKernel)
	name := series
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, part)
	}
	histogram := strings.HasSuffix(name, "_seconds") || name == "match_error_tokens"
	text, ok := all[name]
	return append(strings.Fields(text), "instance", "job", "le"), ok && histogram == (name != series)
}

// checkNames wants every metric that a text names in the list.
func checkNames(t *testing.T, text string) {
	t.Helper()
	found := seriesName.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Error("no metric is named")
	}
	for _, m := range found {
		if _, ok := known(m[1]); !ok {
			t.Errorf("%s is no series that the router has; see the lists in metrics_test.go", m[0])
		}
	}
}

// checkExpression is no parser of PromQL. It finds what goes wrong when metrics
// are renamed: labels that they do not have; and counters without a rate, and
// brackets without their other half.
func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	for _, pair := range []string{"()", "[]", "{}"} {
		if strings.Count(expr, pair[:1]) != strings.Count(expr, pair[1:]) {
			t.Errorf("%s: %s are not in pairs: %s", where, pair, expr)
		}
	}
	if strings.Count(expr, `"`)%2 != 0 {
		t.Errorf("%s: a quotation mark has no other: %s", where, expr)
	}
	if bare := bareTotal.FindString(expr); bare != "" {
		t.Errorf("%s: %s is a counter without rate or increase: %s", where, bare, expr)
	}
	var has []string
	for _, m := range seriesName.FindAllStringSubmatch(expr, -1) {
		labels, _ := known(m[1])
		has = append(has, labels...)
	}
	if has == nil {
		t.Errorf("%s: no metric of the router: %s", where, expr)
	}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		labels, _ := known(m[1])
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) {
				t.Errorf("%s: warmpath_%s has no label %s", where, m[1], l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(has, l) {
				t.Errorf("%s: by (%s), and nothing has the label %s", where, m[1], l)
			}
		}
	}
}

// TestChecksOfDashboardsBite proves that what they are for is found.
func TestChecksOfDashboardsBite(t *testing.T) {
	for series, want := range map[string]bool{
		"ttft_seconds_bucket": true, "ttft_seconds": false, "requests_total": true, "requests_total_sum": false, "in_flight": true,
		"match_error_tokens_count": true, "kernel_rtt_seconds_bucket": true, "kernel_rtt": false,
	} {
		if _, ok := known(series); ok != want {
			t.Errorf("%s: known %v, want %v", series, ok, want)
		}
	}
	if bareTotal.MatchString(`sum(rate(warmpath_requests_total[5m])) + increase(warmpath_retries_total[1h])`) || !bareTotal.MatchString(`sum(warmpath_requests_total)`) || !bareTotal.MatchString(`warmpath_requests_total > 1`) {
		t.Error("counters without a rate are not told from others")
	}
}
