package wire

// Method is a request method; any other token is MethodOther.
type Method uint8

// The methods of RFC 9110, section 9.3, and PATCH (RFC 5789).
const (
	MethodOther Method = iota
	MethodGet
	MethodPost
	MethodHead
	MethodPut
	MethodPatch
	MethodDelete
	MethodOptions
	MethodConnect
	MethodTrace
)

var methodNames = [...]string{
	MethodOther: "other", MethodGet: "GET", MethodPost: "POST", MethodHead: "HEAD", MethodPut: "PUT",
	MethodPatch: "PATCH", MethodDelete: "DELETE", MethodOptions: "OPTIONS", MethodConnect: "CONNECT", MethodTrace: "TRACE",
}

// String returns the method's name, "other" for MethodOther.
func (m Method) String() string { return methodNames[m] }

// methodOf names a method; methods are case-sensitive (RFC 9110, section 9.1).
func methodOf(b []byte) Method {
	switch string(b) {
	case "GET":
		return MethodGet
	case "POST":
		return MethodPost
	case "HEAD":
		return MethodHead
	case "PUT":
		return MethodPut
	case "PATCH":
		return MethodPatch
	case "DELETE":
		return MethodDelete
	case "OPTIONS":
		return MethodOptions
	case "CONNECT":
		return MethodConnect
	case "TRACE":
		return MethodTrace
	}
	return MethodOther
}
