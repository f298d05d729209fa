package dataplane

import (
	"encoding/json"
	"net/netip"
	"sync"
	"testing"

	"warmpath/dataplane/wire"
)

func TestRecordRingForgetsTheOldest(t *testing.T) {
	var r recordRing
	r.init(4)
	if r.at(recordRef{}) != nil || r.at(recordRef{1}) != nil {
		t.Fatal("an empty ring has a record")
	}
	var refs []recordRef
	for i := range 11 {
		c, ref := r.add()
		c.status = i
		refs = append(refs, ref)
		for k, old := range refs {
			got := r.at(old)
			if kept := k > i-4; kept != (got != nil) || kept && got.status != k {
				t.Fatalf("after %d records: record %d is %v", i+1, k, got)
			}
		}
	}
}

func TestRequestIDsAreUnique(t *testing.T) {
	const sources, each = 4, 5000
	ids := make([][]string, sources)
	var wait sync.WaitGroup
	for s := range sources {
		wait.Go(func() {
			var source idSource
			source.init()
			var b [maxRequestID]byte
			for range each {
				ids[s] = append(ids[s], string(b[:source.next(b[:])]))
			}
		})
	}
	wait.Wait()
	seen := map[string]bool{}
	for _, list := range ids {
		for _, id := range list {
			if seen[id] {
				t.Fatalf("id %q twice", id)
			}
			if len(id) != 29 || !wire.ValidRequestID([]byte(id)) {
				t.Fatalf("id %q would not be kept by another router", id)
			}
			seen[id] = true
		}
	}
}

func TestClassOf(t *testing.T) {
	prompt, passed := class{prompt: true, scans: true}, class{scans: true}
	for _, c := range []struct {
		method, path string
		want         class
	}{
		{"POST", "/v1/chat/completions", prompt},
		{"POST", "/v1/messages/count_tokens", prompt},
		{"POST", "/generate", prompt},
		{"POST", "/tokenize", prompt},
		{"GET", "/v1/chat/completions", class{refuse: &errWantsPost}},
		{"OPTIONS", "/v1/chat/completions", class{}},
		{"GET", "/v1/responses", class{}},
		{"GET", "/v1/responses/resp_1", passed},
		{"GET", "/v1/models", class{local: localModels}},
		{"HEAD", "/v1/models", class{local: localModels}},
		{"POST", "/v1/models", class{refuse: &errWantsGet}},
		{"GET", "/health", class{local: localHealth}},
		{"POST", "/v1/load_lora_adapter", class{refuse: &errNoSuchPath}},
		{"POST", "/v1/audio/transcriptions", passed},
		{"POST", "/v2/rerank", passed},
		{"POST", "/v1", class{refuse: &errNoSuchPath}},
		{"POST", "/v1/", class{refuse: &errPathNotPlain}},
		{"POST", "/v1/%6coad_lora_adapter", class{refuse: &errPathNotPlain}},
		{"POST", "/v1//load_lora_adapter", class{refuse: &errPathNotPlain}},
		{"POST", "/v1/load_lora_adapter/", class{refuse: &errPathNotPlain}},
		{"POST", "/v1/../sleep", class{refuse: &errPathNotPlain}},
		{"POST", "/v1/./sleep", class{refuse: &errPathNotPlain}},
		{"POST", "/v1/sleep/..", class{refuse: &errPathNotPlain}},
		{"GET", "/v1/models/org/name-1.5..x", passed},
		{"POST", "/v3/embed", class{refuse: &errNoSuchPath}},
		{"POST", "/rerank", passed},
		{"GET", "/version", passed},
		{"POST", "/sleep", class{refuse: &errNoSuchPath}},
		{"POST", "/flush_cache", class{refuse: &errNoSuchPath}},
		{"GET", "/", class{refuse: &errNoSuchPath}},
		{"GET", "/metrics", class{refuse: &errNoSuchPath}},
		{"POST", "/V1/chat/completions", class{refuse: &errNoSuchPath}},
		{"POST", "/v1/chat/completions?x=1", prompt},
		{"OPTIONS", "*", class{refuse: &errNoSuchPath}},
	} {
		head := []byte(c.method + " " + c.path + " HTTP/1.1\r\nHost: x\r\n\r\n")
		var r wire.Request
		r.Reset()
		if _, err := r.Parse(head, &wire.Limits{}); err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		got := classOf(&r, head)
		got.form = 0 // a table of its own says it
		if got != c.want {
			t.Errorf("%s %s is %+v, want %+v", c.method, c.path, got, c.want)
		}
	}
}

func TestErrorBodyHasTheShapeOfOpenAI(t *testing.T) {
	for _, a := range []*answer{&errNoNode, &errModelMissing, errUnknownModel([]byte("q\"<\x80")), errBodyTooLarge(5)} {
		var got map[string]map[string]any
		if err := json.Unmarshal(errorBody(a, []byte("id-1")), &got); err != nil {
			t.Fatal(err)
		}
		e := got["error"]
		if len(got) != 1 || e["type"] != a.kind || e["code"] != a.code || e["request_id"] != "id-1" || e["message"] == "" {
			t.Errorf("error body %v for %+v", got, a)
		}
		param, ok := e["param"]
		if !ok || (param == nil) != (a.param == "") {
			t.Errorf("param is %v, want %q or null", param, a.param)
		}
	}
}

func TestTrustedSources(t *testing.T) {
	s := &Settings{TrustedSource: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	if !s.trusts(netip.MustParseAddr("10.1.2.3")) || s.trusts(netip.MustParseAddr("11.1.2.3")) || s.trusts(netip.Addr{}) {
		t.Error("wrong proxies are trusted")
	}
}
