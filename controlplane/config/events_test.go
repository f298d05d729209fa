package config

import (
	"testing"

	"warmpath/controlplane/state"
)

// Where the events of an offer's node are follows from the node.
func TestOfferSpec(t *testing.T) {
	o := &Offer{Engine: "vllm", Region: "eu", Weight: 2, MaxInFlight: 9, KVEvents: KVEvents{
		Endpoint: "tcp://{host}:{port+1000}", Replay: "tcp://{host}:{port+2000}", Topic: "kv@{key}", Ranks: 2,
	}}
	for url, want := range map[string]state.KVEvents{
		"http://10.0.0.7:8000": {Endpoint: "tcp://10.0.0.7:9000", Replay: "tcp://10.0.0.7:10000", Topic: "kv@a-1", Ranks: 2},
		"http://[fd00::7]:80":  {Endpoint: "tcp://[fd00::7]:1080", Replay: "tcp://[fd00::7]:2080", Topic: "kv@a-1", Ranks: 2},
		"http://gpu/path":      {Endpoint: "tcp://gpu:1080", Replay: "tcp://gpu:2080", Topic: "kv@a-1", Ranks: 2},
	} {
		spec := o.Spec("a-1", url)
		if spec.KVEvents != want || spec.Name != "a-1" || spec.URL != url || spec.Engine != "vllm" || spec.Region != "eu" || spec.Weight != 2 || spec.MaxInFlight != 9 {
			t.Errorf("%s: %+v, want %+v", url, spec, want)
		}
		if _, err := spec.Validate(); err != nil {
			t.Error(err)
		}
	}
	if o.KVEvents.Endpoint != "tcp://{host}:{port+1000}" {
		t.Errorf("the offer was changed: %+v", o.KVEvents)
	}
	o.KVEvents = KVEvents{Ranks: 1}
	if s := o.Spec("a-1", "http://h:1"); s.KVEvents != (state.KVEvents{}) {
		t.Errorf("events of nowhere: %+v", s.KVEvents)
	}
	if s := (*Offer)(nil).Spec("a-1", "http://h:1"); !s.Equal(state.Spec{Name: "a-1", URL: "http://h:1"}) {
		t.Errorf("of an offer that is gone: %+v", s)
	}
}
