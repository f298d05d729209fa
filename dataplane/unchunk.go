package dataplane

import "warmpath/dataplane/wire"

// relayUnchunked passes on the data of a chunked answer to a client of
// HTTP/1.0, which knows no chunks: the end of the connection is the end of the
// body. Rare enough to write each piece by itself.
func (l *loop) relayUnchunked(x *exchange, b []byte) (used int, err *wire.Error) {
	c := x.client
	for used < len(b) && !x.respBody.Done() {
		data, n, err := x.respBody.Next(b[used:])
		if d := data.Of(b[used:]); len(d) > 0 {
			x.watchData(d)
			if !l.write(c, d) {
				return used, nil
			}
		}
		used += n
		if err != nil {
			return used, err
		}
	}
	return used, nil
}

// appendUnchunked appends the data of body, the start of a chunked body whose
// framing was checked already.
func appendUnchunked(dst, body []byte) []byte {
	var framing wire.Body
	framing.Start(wire.BodyChunked, 0)
	for len(body) > 0 && !framing.Done() {
		data, n, err := framing.Next(body)
		if err != nil {
			return dst
		}
		dst = append(dst, data.Of(body)...)
		body = body[n:]
	}
	return dst
}
