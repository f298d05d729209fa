package admin_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	ct "warmpath/controlplane/controltest"
	"warmpath/scaler"
	"warmpath/scaler/actuate"
)

// everyOfScaler is every metric of a scaler that runs alone; those named scaler_ but
// not scaler_router_ are also a router's with a scaler inside.
var everyOfScaler = map[string]string{
	"build_info":            "version",
	"scaler_target":         "",
	"scaler_actions_total":  "action reason",
	"scaler_nodes":          "offer stage",
	"scaler_offer_withheld": "offer",
	"scaler_orphans":        "",
	"scaler_load":           "when",
	"scaler_router_up":      "router",
	"scaler_router_nodes":   "router",
}

func TestScalerAlone(t *testing.T) {
	routers := []admin.ScalerRouterView{{URL: "http://a", OK: true, Nodes: 1}, {URL: "http://b", OK: true}}
	status := &scaler.Status{
		Last:  scaler.Decided{At: time.Unix(1, 0), Decision: scaler.Decision{Action: scaler.ActionUp, Target: 2, Known: true, LoadNow: 1.5, LoadExpected: 2}},
		Nodes: []scaler.Owned{{Key: "o-1", Offer: "o", Stage: scaler.StageServing}}, Offers: []scaler.OfferStatus{{Name: "o", Withheld: "quota"}},
		Orphans: []scaler.Orphan{{Offer: "o", Instance: actuate.Instance{ID: "x"}}}, Actions: map[[2]string]uint64{{"up", "queue"}: 3},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	side := admin.ServeScaler(l, admin.ScalerOptions{
		Status: func() *scaler.Status { return status }, Routers: func() []admin.ScalerRouterView { return slices.Clone(routers) },
		Refused: func() string { return "why" },
		Callback: func(offer string) http.Handler {
			if offer != "o" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		},
		Token: "secret", Version: "v1", Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { side.Stop(t.Context()) })
	s := &surface{t: t, base: "http://" + l.Addr().String(), token: "secret"}
	families := s.metrics()
	for name, labels := range everyOfScaler {
		f := families["warmpath_"+name]
		if f == nil {
			t.Errorf("no warmpath_%s", name)
			continue
		}
		var got []string
		for _, l := range f.Metric[0].Label {
			got = append(got, l.GetName())
		}
		if strings.Join(got, " ") != labels || f.GetHelp() == "" {
			t.Errorf("warmpath_%s has labels %q, help %q", name, got, f.GetHelp())
		}
	}
	for name := range families {
		if _, known := everyOfScaler[strings.TrimPrefix(name, "warmpath_")]; !known {
			t.Errorf("%s is not in the list", name)
		}
	}
	var v admin.ScalerView
	s.get("/api/scaler", &v)
	if !v.Enabled || v.Last.Target != 2 || len(v.Nodes) != 1 || len(v.Orphans) != 1 || v.Refused != "why" || !slices.Equal(v.Routers, routers) {
		t.Errorf("view: %+v", v)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/api/nodes": 404} {
		if status, body := s.call("GET", path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	s.token = "" // what a provider sends is signed
	for path, want := range map[string]int{"/healthz": 200, "/api/scaler": 401, "/readyz": 401} {
		if status, body := s.call("GET", path, ""); status != want {
			t.Errorf("%s without a token: %d %s", path, status, body)
		}
	}
	if status, body := s.call("POST", "/api/scaler/callback/o", ""); status != 204 {
		t.Errorf("a callback: %d %s", status, body)
	}
	s.refused("POST", "/api/scaler/callback/p", "", 404, "not_found", "p")
	s.token = "secret"
	routers[1].OK, routers[1].Error = false, "router http://b has not answered for 4 s"
	s.refused("GET", "/readyz", "", 503, "not_ready", "http://b has not answered")
}

// One scaler at a time scales the nodes of a model, and requests wait for its nodes.
func TestClaim(t *testing.T) {
	s := serve(t, "", "nodes: []\nmodels: [{name: m}, {name: n}]\n")
	claim := func(id, fleet, model string, may bool) string {
		return fmt.Sprintf(`{"id":%q,"fleet":%q,"model":%q,"may":%v}`, id, fleet, model, may)
	}
	taken := func(body string) {
		t.Helper()
		if status, said := s.call("POST", "/api/scaler/claim", body); status != 204 {
			t.Fatalf("claim %s: %d %s", body, status, said)
		}
	}
	expects := func(models string) {
		t.Helper()
		ct.Eventually(t, "nodes of "+models+" are expected", func() bool {
			return strings.Join(s.Control.State().Expected.Models, " ") == models
		})
	}
	taken(claim("1", "f", "m", true))
	taken(claim("1", "f", "m", true))
	expects("m")
	s.refused("POST", "/api/scaler/claim", claim("2", "g", "m", true), 409, "claimed", `fleet "f", model "m"`)
	s.refused("POST", "/api/scaler/claim", claim("2", "f", "n", true), 409, "claimed", "a fleet and a model of its own")
	s.refused("POST", "/api/scaler/claim", claim("2", "g", "", true), 409, "claimed", "another scaler")
	taken(claim("2", "g", "n", true))
	expects("m n")
	taken(claim("1", "f", "m", false))
	expects("n")
	s.refused("POST", "/api/scaler/claim", `{"id":"1","process":"copy","fleet":"f","model":"m"}`, 409, "claimed", "if state_dir was copied")
	s.refused("POST", "/api/scaler/claim", claim("", "h", "x", true), 400, "bad_claim", "id")
	s.refused("POST", "/api/scaler/claim", "{", 400, "bad_claim", "send")

	own := serve(t, "", "nodes: []\nscaler: {enabled: true, model: m, fleet: f, offers: [{name: o, provider: command, command: {create: [\"false\"], delete: [\"false\"], list: [\"false\"]}}]}\n")
	own.refused("POST", "/api/scaler/claim", claim("1", "g", "m", true), 409, "claimed", "scaler.enabled: false")
	if status, said := own.call("POST", "/api/scaler/claim", claim("1", "g", "n", true)); status != 204 {
		t.Errorf("another model: %d %s", status, said)
	}
}
