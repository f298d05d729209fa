package wire

import "bytes"

// splitTarget finds path, query and authority of the target (RFC 9112,
// section 3.2): origin-form, absolute-form of http and https, or asterisk-form
// of OPTIONS. Nothing is normalised. marked says that there may be a '?' or '%'.
func (r *Request) splitTarget(b []byte, marked bool) *fault {
	target := r.Target.Of(b)
	switch {
	case len(target) == 0:
		return faultTarget
	case target[0] == '/':
		return r.splitPath(b, r.Target.Start, marked)
	case len(target) == 1 && target[0] == '*':
		if r.Method != MethodOptions {
			return faultAsterisk
		}
		r.Path = r.Target
		return nil
	}
	scheme := schemeBytes(target)
	if scheme == 0 {
		return faultTarget
	}
	end := scheme
	for end < len(target) && target[end] != '/' && target[end] != '?' {
		end++
	}
	if !validHost(target[scheme:end]) {
		return faultTarget
	}
	r.Host = Span{r.Target.Start + uint32(scheme), r.Target.Start + uint32(end)}
	return r.splitPath(b, r.Host.End, marked)
}

// splitPath divides the target from start on at the first '?'. Every '%' of
// the path must be followed by two hexadecimal digits.
func (r *Request) splitPath(b []byte, start uint32, marked bool) *fault {
	end := r.Target.End
	r.Path, r.Query = Span{start, end}, Span{end, end}
	if !marked {
		return nil
	}
	path := b[start:end]
	for i, c := range path {
		if c == '%' && (i+2 >= len(path) || hexValue(path[i+1]) > 15 || hexValue(path[i+2]) > 15) {
			return faultTarget
		}
		if c == '?' {
			r.Path.End = start + uint32(i)
			r.Query.Start = r.Path.End + 1
			break
		}
	}
	return nil
}

// schemeBytes returns the length of "http://" or "https://" at the start of target, else 0.
func schemeBytes(target []byte) int {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(target) >= len(scheme) && equalFold(target[:len(scheme)], scheme) {
			return len(scheme)
		}
	}
	return 0
}

// validHost reports whether v is uri-host [ ":" port ] (RFC 9110, section
// 7.2) with a host that is not empty. Percent-encoding, commas, user
// information, zones of IPv6 addresses and future IP literals are refused:
// parsers differ about them.
func validHost(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	end := 0
	if v[0] == '[' {
		end = bytes.IndexByte(v, ']') + 1
		if end == 0 || !validIPv6(v[1:end-1]) {
			return false
		}
	} else {
		for end < len(v) && class[v[end]]&isHost != 0 {
			end++
		}
	}
	return end > 0 && validPort(v[end:])
}

// validPort accepts nothing, or a colon and at most five digits below 65536.
func validPort(v []byte) bool {
	if len(v) == 0 {
		return true
	}
	if v[0] != ':' || len(v) > 6 {
		return false
	}
	port := 0
	for _, c := range v[1:] {
		if !isDigit(c) {
			return false
		}
		port = port*10 + int(c-'0')
	}
	return port < 1<<16
}

// validIPv6 reports whether v is an IPv6address of RFC 3986, section 3.2.2.
func validIPv6(v []byte) bool {
	groups, gap := 0, false
	if bytes.HasPrefix(v, []byte("::")) {
		gap = true
		v = v[2:]
		if len(v) == 0 {
			return true
		}
	}
	for {
		n := 0
		for n < len(v) && n < 5 && hexValue(v[n]) < 16 {
			n++
		}
		if n < len(v) && v[n] == '.' { // the last 32 bits may be an IPv4 address
			groups += 2
			return validIPv4(v) && (groups == 8 || gap && groups < 8)
		}
		if n == 0 || n > 4 {
			return false
		}
		groups++
		v = v[n:]
		if len(v) == 0 {
			return groups == 8 || gap && groups < 8
		}
		if v[0] != ':' || groups >= 8 {
			return false
		}
		v = v[1:]
		if len(v) > 0 && v[0] == ':' {
			if gap {
				return false
			}
			gap = true
			v = v[1:]
			if len(v) == 0 {
				return groups < 8
			}
		}
	}
}

// validIPv4 accepts four decimal numbers below 256 without leading zeros, divided by dots.
func validIPv4(v []byte) bool {
	for part := range 4 {
		n, value := 0, 0
		for n < len(v) && n < 4 && isDigit(v[n]) {
			value = value*10 + int(v[n]-'0')
			n++
		}
		if n == 0 || value > 255 || n > 1 && v[0] == '0' {
			return false
		}
		v = v[n:]
		if part == 3 {
			break
		}
		if len(v) == 0 || v[0] != '.' {
			return false
		}
		v = v[1:]
	}
	return len(v) == 0
}
