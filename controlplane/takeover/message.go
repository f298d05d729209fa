package takeover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// hello and welcome are read by every version: fields may be added to them, and
// none may change its meaning.
type hello struct {
	Version int          `json:"version"`
	Program string       `json:"program"` // its version, for people
	PID     int          `json:"pid"`
	Serves  []SocketName `json:"serves"` // clients and operators: where it will listen for them
}

type welcome struct {
	Version int    `json:"version"`
	Program string `json:"program"`
	PID     int    `json:"pid"`
	Seed    string `json:"seed"`
	Sockets int    `json:"sockets"` // that follow
	Nodes   int    `json:"nodes"`   // that follow
	// Formers came later: an earlier program names none.
	Formers []int `json:"formers,omitempty"`
}

type refusal struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Why     string `json:"why"`
}

// SocketName says which listening socket is meant. Sockets are handed over to
// whoever asks for the same: what the configuration wants it for, and where.
type SocketName struct {
	For     string `json:"for"` // key of the configuration, and the node's rank
	Network string `json:"network"`
	Address string `json:"address"` // as configured
}

// Node is what a router knows of a node.
type Node struct {
	Spec    state.Spec `json:"spec"`
	Added   bool       `json:"added"`   // at run time, not by the configuration
	Source  string     `json:"source"`  // that names it
	Leased  bool       `json:"leased"`  // it has registered itself
	Ready   bool       `json:"ready"`   // it takes requests
	Drained bool       `json:"drained"` // somebody asked for that

	Models []state.Served `json:"models"`
	Engine string         `json:"engine"`
	Sample state.Sample   `json:"sample"` // the last reading, or what of it stays true
	Speed  Speed          `json:"speed"`
	Exact  uint32         `json:"exact"` // classes of requests

	// What its entries of the index depend on.
	Model      string `json:"model"`
	UnitTokens int    `json:"unit_tokens"`
}

// Speed is what was learned of a node's.
type Speed struct {
	Prefill        fleet.Gauge `json:"prefill"`
	PrefillSamples int         `json:"prefill_samples"` // answers that it is worth
	Decode         fleet.Gauge `json:"decode"`
	DecodeSamples  int         `json:"decode_samples"`
	RoundTrip      fleet.Gauge `json:"round_trip"`
	Evicted        fleet.Gauge `json:"evicted"`
}

// Offer is what the running router begins to hand over with.
type Offer struct {
	Seed  string
	Nodes []Node
	// Formers are the processes that the running router, or one before it, took over
	// from and that have not ended: they may have requests under way.
	Formers []int
}

// Fetch asks for what is known of one rank.
type Fetch struct {
	Node string `json:"node"`
	Rank int    `json:"rank"`
	// First is the first batch of its events that the asker has heard by itself;
	// 0 = none, or the very first.
	First uint64 `json:"first"`
}

// Rank ends what is known of one rank.
type Rank struct {
	Why    string         `json:"why,omitempty"` // nothing is known of it; "" = all was sent
	Stream *kvevent.Saved `json:"stream,omitempty"`
	Report *report.Saved  `json:"report,omitempty"`
}

// encode makes the body of a frame.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxBodyBytes {
		err = fmt.Errorf("it has %d bytes, %d are allowed", len(b), maxBodyBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("write %T: %w", v, err)
	}
	return b, nil
}

// decode reads the body of a frame, whole and without unknown fields.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows it")
		}
	}
	if err != nil {
		return fmt.Errorf("read %T: %w", v, err)
	}
	return nil
}

// decodeOpen is decode of what another version may have written.
func decodeOpen(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %T: %w", v, err)
	}
	return nil
}
