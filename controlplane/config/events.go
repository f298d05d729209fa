package config

import (
	"net/url"
	"strings"

	"warmpath/controlplane/state"
	"warmpath/scaler/actuate"
)

// eventTexts are the texts of KVEvents by their keys.
func (e *KVEvents) eventTexts() []struct {
	key string
	to  *string
} {
	return []struct {
		key string
		to  *string
	}{{"endpoint", &e.Endpoint}, {"listen", &e.Listen}, {"replay", &e.Replay}, {"topic", &e.Topic}}
}

func kvEventsKeys(doc string, e *KVEvents) entry {
	return group("kv_events", doc,
		leaf("endpoint", `""`, "such as tcp://10.0.0.11:5557", &e.Endpoint, zmqEndpoint, quote),
		leaf("listen", `""`, "for engines that connect", &e.Listen, zmqEndpoint, quote),
		leaf("replay", `""`, "such as tcp://10.0.0.11:5558", &e.Replay, zmqEndpoint, quote),
		leaf("topic", `""`, "", &e.Topic, text("kv@gpu-a"), quote),
		leaf("ranks", "1", "data-parallel ranks, on ports that follow each other", &e.Ranks, integer(1, state.MaxRanks), showInt[int]))
}

// offerPlaces are what texts of an offer's kv_events may leave open.
var offerPlaces = []string{"host", "port", "key"}

// at is where the events of one node of an offer are.
func (e KVEvents) at(name, raw string) state.KVEvents {
	values := map[string]string{"key": name}
	if u, err := url.Parse(raw); err == nil { // one that is none is refused with its node
		values["host"], values["port"] = u.Hostname(), u.Port()
		if values["port"] == "" {
			values["port"] = "80"
		}
		if strings.Contains(values["host"], ":") {
			values["host"] = "[" + values["host"] + "]"
		}
	}
	for _, t := range e.eventTexts() {
		*t.to = actuate.Fill(*t.to, values)
	}
	s := state.KVEvents{Endpoint: e.Endpoint, Listen: e.Listen, Replay: e.Replay, Topic: e.Topic, Ranks: e.Ranks}
	if !s.Configured() {
		return state.KVEvents{}
	}
	return s
}

// offersEvents refuses places that nobody fills.
func (d *decoder) offersEvents(path string, e *KVEvents) {
	for _, t := range e.eventTexts() {
		key := path + "kv_events." + t.key
		if err := actuate.CheckPlaceholders(*t.to, offerPlaces...); err != nil {
			d.refuse(key, d.places[key], quoteShort(*t.to), complaint{err.Error(), "write an address such as tcp://{host}:{port+1000}"})
		}
	}
	d.halfOfEvents(path, e)
}

// halfOfEvents refuses events that are had in two ways, or only when they were missed.
func (d *decoder) halfOfEvents(path string, e *KVEvents) {
	refuse := func(key, value, what, remedy string) {
		d.refuse(path+key, d.places[path+key], quoteShort(value), complaint{what, remedy})
	}
	switch {
	case e.Endpoint != "" && e.Listen != "":
		refuse("kv_events.listen", e.Listen, "events are dialled at kv_events.endpoint already", "remove one of the two")
	case e.Replay != "" && e.Endpoint == "" && e.Listen == "":
		refuse("kv_events.replay", e.Replay, "there is a replay without events", "give kv_events.endpoint or kv_events.listen too")
	}
}
