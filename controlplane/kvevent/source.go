package kvevent

import (
	"errors"
	"fmt"

	"warmpath/controlplane/kvevent/zmtp"
)

// Source says where one rank's events come from. The endpoints are those of
// rank 0: engines raise the port by the rank, and so is done here.
type Source struct {
	Node string // name, given back in each Delivery
	Rank int
	// Endpoint is dialled, Listen is bound; one of them is set. An engine binds
	// its own endpoint if that has a wildcard or is ipc://, and connects if it
	// names a host: then it is the router that listens. Several engines may
	// connect to one listening endpoint, but only one Source can bind it: its
	// Topic says which engine it is about.
	Endpoint string
	Listen   string
	// Replay is dialled; "" for engines without.
	Replay string
	// Topic is the prefix of the topics that are wanted; "" are all.
	Topic string
	// Awaits says that what another process knew of the stream is still to come:
	// Subscriber.Resume or Begin follows. Until then batches are kept, and nothing
	// is delivered.
	Awaits bool
	// Bind opens the socket of Listen in another way; nil is the usual one.
	Bind zmtp.Bind
}

// Check says what is wrong with a source, all at once.
func (s Source) Check() error {
	var errs []error
	if (s.Endpoint == "") == (s.Listen == "") {
		errs = append(errs, errors.New("set either the endpoint to dial or the one to listen on"))
	}
	for _, e := range []string{s.Endpoint, s.Listen, s.Replay} {
		if e == "" {
			continue
		}
		if err := zmtp.CheckEndpoint(e); err != nil {
			errs = append(errs, err)
		} else if _, err := zmtp.ForRank(e, s.Rank); err != nil {
			errs = append(errs, err)
		}
	}
	for _, e := range []string{s.Endpoint, s.Replay} {
		if zmtp.IsWildcard(e) {
			errs = append(errs, fmt.Errorf("endpoint %q has no host: name the engine's", e))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("events of node %q rank %d: %w", s.Node, s.Rank, err)
	}
	return nil
}

// ranked returns the source with the endpoints of its own rank.
func (s Source) ranked() (Source, error) {
	if err := s.Check(); err != nil {
		return s, err
	}
	for _, e := range []*string{&s.Endpoint, &s.Listen, &s.Replay} {
		*e, _ = zmtp.ForRank(*e, s.Rank) // Check has tried it
	}
	return s, nil
}

// Delivery is one step of a stream: in order, and exactly what is to be done
// to the index and to the node's trust.
type Delivery struct {
	Node string
	Rank int
	// Trust of the stream from now on.
	Trust Trust
	// Clear says that all of the rank's blocks are to be forgotten. It comes
	// alone, and so does a mere change of trust.
	Clear bool
	// Payload is an encoded batch, the receiver's until Release; nil if there is
	// none. Decode reads it.
	Payload []byte
	Seq     uint64 // of the batch

	from *Subscriber
}

// Decode reads the payload with the receiver's Decoder, on its goroutine: when a
// whole fleet restarts, a hundred streams have batches at once, and if each
// decoded its own the loops that route requests would find every processor
// taken. The batch is the Decoder's until it is used again; nil for a payload
// that is no batch, which the Subscriber counts and shows in its Status.
func (d Delivery) Decode(with *Decoder) *Batch {
	b, err := with.Decode(d.Payload)
	if err == nil {
		return b
	}
	if d.from != nil {
		d.from.refuse(fmt.Errorf("batch %d: %w", d.Seq, err))
	}
	return nil
}

// poolPayloads is how many payloads a Subscriber keeps the memory of for use
// again, and poolBytes the most that one of them may have.
const (
	poolPayloads = 64
	poolBytes    = 1 << 20
)

// Release gives the payload back. It must not be used afterwards.
func (d Delivery) Release() {
	if d.from == nil || cap(d.Payload) == 0 || cap(d.Payload) > poolBytes {
		return
	}
	select {
	case d.from.free <- d.Payload[:0]:
	default:
	}
}
