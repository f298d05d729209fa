package wire

// maxOptions bounds the options of all Connection fields of a head, because
// every one of them is compared with every field.
const maxOptions = 32

// connection is what the Connection fields say.
type connection struct{ close, keepAlive, upgrade bool }

// readConnection reads the options of all Connection fields and marks the
// fields that they name as not to be sent on (RFC 9110, section 7.6.1).
func readConnection(b []byte, fields []Field) (c connection, f *fault) {
	options := 0
	for i := range fields {
		if fields[i].ID != FieldConnection {
			continue
		}
		v := fields[i].Value.Of(b)
		for at := 0; at < len(v); {
			end := at
			for end < len(v) && v[end] != ',' {
				end++
			}
			s := trim(v, at, end)
			option := s.Of(v)
			at = end + 1
			if len(option) == 0 { // empty elements are allowed: RFC 9110, section 5.6.1.2
				continue
			}
			if options++; options > maxOptions || !isTokens(option) {
				return c, faultConnection
			}
			switch {
			case equalFold(option, "close"):
				c.close = true
			case equalFold(option, "keep-alive"):
				c.keepAlive = true
			case equalFold(option, "upgrade"):
				c.upgrade = true
			default:
				dropNamed(b, fields, option)
			}
		}
	}
	return c, nil
}

func isTokens(b []byte) bool {
	for _, c := range b {
		if class[c]&isToken == 0 {
			return false
		}
	}
	return true
}

// dropNamed marks the fields of that name, unless it must not be named.
func dropNamed(b []byte, fields []Field, name []byte) {
	id := fieldID(name)
	if unnameable.has(id) {
		return
	}
	for i := range fields {
		f := &fields[i]
		if f.ID == id && (id != FieldOther || sameName(f.Name.Of(b), name)) {
			f.Drop = true
		}
	}
}

func sameName(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if toLower(a[i]) != toLower(b[i]) {
			return false
		}
	}
	return true
}

// persists says whether the connection may be used again (RFC 9112, section 9.3).
func (c connection) persists(minor uint8) bool {
	return !c.close && (minor > 0 || c.keepAlive)
}
