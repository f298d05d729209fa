package kvevent

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/tinylib/msgp/msgp"
)

// storedPayload is a batch that stores one block of 16 tokens at the root.
func storedPayload(block uint64) []byte {
	b := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 1)
	b = msgp.AppendArrayHeader(msgp.AppendArrayHeader(b, 1), 5)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), block)
	b = msgp.AppendNil(b)
	b = msgp.AppendArrayHeader(b, 16)
	for i := range 16 {
		b = msgp.AppendUint64(b, block+uint64(i))
	}
	return msgp.AppendInt(b, 16)
}

// publisher is an engine that connects to the router.
type publisher struct {
	socket zmq4.Socket
	topic  string
	next   uint64
}

func connectPublisher(t *testing.T, endpoint, topic string) *publisher {
	t.Helper()
	p := &publisher{zmq4.NewPub(context.Background(), zmq4.WithLogger(log.New(io.Discard, "", 0))), topic, 0}
	t.Cleanup(func() { _ = p.socket.Close() })
	if err := p.socket.Dial(endpoint); err != nil {
		t.Fatal(err)
	}
	until(t, "subscription", func() bool { return len(p.socket.(zmq4.Topics).Topics()) > 0 })
	return p
}

func (p *publisher) publish(t *testing.T, blocks ...uint64) {
	t.Helper()
	for _, b := range blocks {
		m := zmq4.NewMsgFrom([]byte(p.topic), binary.BigEndian.AppendUint64(nil, p.next), storedPayload(b))
		if err := p.socket.SendMulti(m); err != nil {
			t.Fatal(err)
		}
		p.next++
	}
}

// freePort is an endpoint that nobody has bound at the moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "tcp://" + l.Addr().String()
}

// TestListens lets engines connect: several, of which one is meant; one that
// comes back while its former connection still stands; and a stranger.
func TestListens(t *testing.T) {
	endpoint := freePort(t)
	f := follow(t, Source{Node: "n", Listen: endpoint, Topic: "kv@n@"}, 16, 100)
	var mute net.Conn
	until(t, "binding", func() (ok bool) {
		c, err := net.Dial("tcp", endpoint[len("tcp://"):])
		mute = c
		return err == nil
	})
	defer mute.Close()

	first := connectPublisher(t, endpoint, "kv@n@m")
	other := connectPublisher(t, endpoint, "kv@other@m")
	first.publish(t, 1, 2)
	other.publish(t, 3, 4)
	first.publish(t, 5)
	until(t, "three blocks", func() bool { return f.blocks() == 3 && f.sub.Status().Trust == Live })

	second := connectPublisher(t, endpoint, "kv@n@m")
	second.publish(t, 7)
	until(t, "the new process", func() bool { return f.blocks() == 1 && f.sub.Status().Restarts == 1 })
	first.publish(t, 6) // the former process is not heard any more
	second.publish(t, 8)
	until(t, "two blocks", func() bool { return f.blocks() == 2 })
	until(t, "the refusal", func() bool { return f.sub.Status().Rejected > 0 })

	_ = second.socket.Close()
	until(t, "the loss", func() bool { return f.sub.Status().Trust == Gapped })
}

// Frames that are no batch, and payloads that are none, are counted and passed
// over.
func TestRejectsWhatIsNoBatch(t *testing.T) {
	endpoint := freePort(t)
	f := follow(t, Source{Node: "n", Listen: endpoint}, 16, 100)
	until(t, "binding", func() bool {
		c, err := net.Dial("tcp", endpoint[len("tcp://"):])
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	p := connectPublisher(t, endpoint, "")
	for _, frames := range [][][]byte{{{}}, {{}, {1}, {2}}, {make([]byte, 8), {}}, {nil, make([]byte, 8), []byte("x")}} {
		if err := p.socket.SendMulti(zmq4.NewMsgFrom(frames...)); err != nil {
			t.Fatal(err)
		}
	}
	p.next = 1
	p.publish(t, 9)
	until(t, "four refusals and a block", func() bool { return f.sub.Status().Rejected == 4 && f.blocks() == 1 })
}

// An endpoint that somebody else has is tried again until it is free.
func TestWaitsForItsPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "tcp://" + taken.Addr().String()
	f := follow(t, Source{Node: "n", Listen: endpoint}, 16, 100)
	until(t, "the error", func() bool { return f.sub.Status().Err != "" })
	_ = taken.Close()
	p := connectPublisher(t, endpoint, "")
	p.publish(t, 1)
	until(t, "a block", func() bool { return f.blocks() == 1 && f.sub.Status().Err == "" })
}

// BenchmarkSubscriber is what one stream takes from socket to delivery, in
// batches of one block.
func BenchmarkSubscriber(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	total := uint64(b.N)
	sub, err := NewSubscriber(Source{Node: "n", Endpoint: "tcp://" + l.Addr().String()}, func(d Delivery) bool {
		if d.Payload != nil && d.Seq == total-1 {
			close(done)
		}
		d.Release()
		return true
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go sub.Run(ctx)
	conn, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	payload := storedPayload(1 << 40)
	b.SetBytes(int64(len(payload)))
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	var out bytes.Buffer
	out.WriteString("\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x00NULL" + strings.Repeat("\x00", 48)) // RFC 23
	out.WriteString("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB")
	b.ReportAllocs()
	b.ResetTimer()
	for seq := range total {
		out.Write([]byte{1, 0, 1, 8})
		out.Write(binary.BigEndian.AppendUint64(nil, seq))
		out.Write([]byte{0, byte(len(payload))})
		out.Write(payload)
		if out.Len() > 1<<15 || seq == total-1 {
			if _, err := conn.Write(out.Bytes()); err != nil {
				b.Fatal(err)
			}
			out.Reset()
		}
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		b.Fatalf("%+v", sub.Status())
	}
}
