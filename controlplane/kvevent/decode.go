package kvevent

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

const (
	// maxEvents bounds the events of a batch, runs of removals counted once. A
	// step changes as many blocks as it computes tokens for, at most.
	maxEvents = 1 << 16
	// maxInterned bounds the names that a Decoder remembers, and their length.
	maxInterned      = 4096
	maxInternedBytes = 256
	// keptBatchBytes is the most that a Decoder keeps for the next batch.
	keptBatchBytes = 16 << 20
)

// Decoder reads batches. Its zero value is ready; one goroutine uses it. Once
// warm it allocates nothing for batches whose names (adapters, salts) it has
// seen.
type Decoder struct {
	own   Batch
	batch *Batch // being filled
	names map[string]string
	label []byte // scratch
	// Of the event in hand: what is read when all other fields are known.
	extraAt []byte
	loraID  int
}

// Decode reads one payload: an array of time, events and rank, or a map with
// such keys; each event an array whose first element is its kind, or a map with
// the key "type" (vLLM to 0.23 and SGLang before its tagged maps; vLLM from
// 0.24). What one event has wrong loses that event alone, and is counted in
// Batch.Dropped; unknown kinds, keys and elements are ignored. The error says
// that the payload is no batch at all.
//
// The result is the Decoder's and valid until the next call.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	if d.own.bytes() > keptBatchBytes {
		d.own = Batch{}
	}
	err := d.DecodeInto(&d.own, payload)
	return &d.own, err
}

// DecodeInto is Decode into memory of the caller's. Nothing of the payload is
// kept.
func (d *Decoder) DecodeInto(batch *Batch, payload []byte) error {
	batch.reset()
	d.batch = batch
	defer func() { d.batch, d.extraAt = nil, nil }()
	var err error
	if msgp.NextType(payload) == msgp.MapType {
		err = d.batchMap(payload)
	} else {
		err = d.batchArray(payload)
	}
	batch.link()
	if err != nil {
		return fmt.Errorf("decode batch of %d bytes: %w", len(payload), err)
	}
	return nil
}

// batchArray reads [time, events, rank]; the rank may be missing, and what
// follows is ignored.
func (d *Decoder) batchArray(b []byte) error {
	n, b, err := readArray(b)
	if err != nil {
		return err
	}
	if n < 2 {
		return fmt.Errorf("array of %d elements, want time, events and rank", n)
	}
	if d.batch.TimeSeconds, b, err = readSeconds(b); err != nil {
		return fmt.Errorf("time: %w", err)
	}
	if b, err = d.events(b); err != nil || b == nil || n < 3 {
		return err
	}
	d.batch.Rank = readRank(b)
	return nil
}

// batchMap reads the same with names.
func (d *Decoder) batchMap(b []byte) error {
	pairs, b, err := readMap(b)
	if err != nil {
		return err
	}
	found := false
	for range pairs {
		key, value, err := readText(b)
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		switch string(key) {
		case "events":
			found = true
			if b, err = d.events(value); err != nil || b == nil {
				return err
			}
			continue
		case "ts":
			d.batch.TimeSeconds, _, _ = readSeconds(value) // no event hangs on it
		case "data_parallel_rank", "attn_dp_rank":
			d.batch.Rank = readRank(value)
		}
		if b, err = skip(value); err != nil {
			return fmt.Errorf("value of %q: %w", key, err)
		}
	}
	if !found {
		return fmt.Errorf("map without events")
	}
	return nil
}

// readRank reads a rank for which nothing else is lost if it is odd.
func readRank(b []byte) int {
	if v, ok, _, err := readNumber(b); err == nil && ok {
		return v
	}
	return NotSaid
}

// events reads the array of events. The rest is nil if the payload ended
// inside it: what was read before counts.
func (d *Decoder) events(b []byte) ([]byte, error) {
	n, b, err := readArray(b)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	for i := range n {
		rest, reason := d.event(b)
		if reason != reasons {
			if rest, err = skip(b); err != nil {
				d.batch.Dropped[Truncated] += uint64(n - i)
				return nil, nil
			}
			d.batch.Dropped[reason]++
		}
		b = rest
	}
	return b, nil
}

// event reads one event and appends it to the batch. If that fails it says
// why, and the batch is as before.
func (d *Decoder) event(b []byte) (rest []byte, reason Reason) {
	batch := d.batch
	if len(batch.Events) == maxEvents {
		return nil, TooMany
	}
	before := span{[2]int{len(batch.hashes)}, [2]int{len(batch.tokens)}, [2]int{len(batch.extra)}, [2]int{len(batch.ends)}}
	e := Event{Merged: 1, Group: NotSaid}
	rest, reason = d.fields(b, &e)
	if reason != reasons {
		batch.hashes, batch.tokens = batch.hashes[:before.hashes[0]], batch.tokens[:before.tokens[0]]
		batch.extra, batch.ends = batch.extra[:before.extra[0]], batch.ends[:before.ends[0]]
		return nil, reason
	}
	if d.merge(&e) {
		return rest, reasons
	}
	before.hashes[1], before.tokens[1] = len(batch.hashes), len(batch.tokens)
	before.extra[1], before.ends[1] = len(batch.extra), len(batch.ends)
	batch.Events = append(batch.Events, e)
	batch.spans = append(batch.spans, before)
	return rest, reasons
}

// merge joins a removal to the one before it: vLLM sends one for each block.
func (d *Decoder) merge(e *Event) bool {
	last := len(d.batch.Events) - 1
	if e.Kind != Removed || last < 0 {
		return false
	}
	p := &d.batch.Events[last]
	if p.Kind != Removed || p.Medium != e.Medium || p.Group != e.Group || p.Remote != e.Remote {
		return false
	}
	p.Merged++
	d.batch.spans[last].hashes[1] = len(d.batch.hashes)
	return true
}

// fields reads an event in either form. reason is reasons if all went well.
func (d *Decoder) fields(b []byte, e *Event) (rest []byte, reason Reason) {
	d.extraAt, d.loraID = nil, 0
	var err error
	if msgp.NextType(b) == msgp.MapType {
		rest, reason, err = d.eventMap(b, e)
	} else {
		rest, reason, err = d.eventArray(b, e)
	}
	if err == nil && reason == reasons {
		err = d.complete(e)
	}
	if err != nil {
		return nil, Malformed
	}
	return rest, reason
}

// eventArray reads an event whose fields have positions.
func (d *Decoder) eventArray(b []byte, e *Event) (rest []byte, reason Reason, err error) {
	n, b, err := readArray(b)
	if err != nil || n == 0 {
		return nil, Malformed, err
	}
	tag, b, err := readText(b)
	if err != nil {
		return nil, Malformed, err
	}
	var order []field
	if e.Kind, order = kindOf(tag); e.Kind == 0 {
		return nil, UnknownTag, nil
	}
	for i := range n - 1 {
		if i < len(order) {
			b, err = d.field(order[i], b, e)
		} else {
			b, err = skip(b)
		}
		if err != nil {
			return nil, Malformed, err
		}
	}
	return b, reasons, nil
}

// eventMap reads an event whose fields have names, in any order.
func (d *Decoder) eventMap(b []byte, e *Event) (rest []byte, reason Reason, err error) {
	pairs, b, err := readMap(b)
	if err != nil {
		return nil, Malformed, err
	}
	tagged := false
	for range pairs {
		key, value, err := readText(b)
		if err != nil {
			return nil, Malformed, err
		}
		if string(key) == "type" {
			var tag []byte
			if tag, b, err = readText(value); err != nil {
				return nil, Malformed, err
			}
			if e.Kind, _ = kindOf(tag); e.Kind == 0 {
				return nil, UnknownTag, nil
			}
			tagged = true
			continue
		}
		if b, err = d.field(fieldOf(key), value, e); err != nil {
			return nil, Malformed, err
		}
	}
	if !tagged {
		return nil, Malformed, errType
	}
	return b, reasons, nil
}

// intern returns a string for the bytes, the same memory for the same name.
func (d *Decoder) intern(name []byte) string {
	if len(name) == 0 {
		return ""
	}
	if s, ok := d.names[string(name)]; ok {
		return s
	}
	s := string(name)
	if len(s) > maxInternedBytes {
		return s
	}
	if d.names == nil || len(d.names) == maxInterned {
		d.names = make(map[string]string)
	}
	d.names[s] = s
	return s
}
