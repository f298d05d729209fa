package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmpath/controlplane/report"
	"warmpath/controlplane/state"
)

// wrongType is the complaint about a value of another kind.
func wrongType(v item, want, remedy string) complaint {
	if v.kind == kindNull {
		return complaint{"the key has no value", remedy + ", or remove the key"}
	}
	return complaint{kindNames[v.kind] + " where " + want + " is wanted", remedy}
}

// textLike is a value's text if it is written so that it can only be text, or
// a plain word.
func textLike(v item, example string) (string, complaint) {
	if v.kind != kindText {
		return "", wrongType(v, "text", "write text such as "+example)
	}
	return v.text, complaint{}
}

// text reads any text of at most 4 KiB on one line.
func text(example string) func(item) (string, complaint) {
	return func(v item) (string, complaint) {
		s, c := textLike(v, example)
		switch {
		case !c.none():
		case len(s) > 4096:
			c = complaint{fmt.Sprintf("the text has %d bytes", len(s)), "use at most 4096"}
		case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
			c = complaint{"the text has control characters", "write it on one line, without tabs"}
		}
		return s, c
	}
}

func quote(s string) string { return strconv.Quote(s) }

// token reads a secret that stands in a header: visible ASCII.
func token68(v item) (string, complaint) {
	s, c := text(`"s3cret"`)(v)
	if c.none() && strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		c = complaint{"the token has characters that a header cannot carry", "use letters, digits and punctuation of ASCII"}
	}
	return s, c
}

// complaintOf turns an error of the form "what: remedy" into a complaint.
func complaintOf(err error) complaint {
	if err == nil {
		return complaint{}
	}
	var fault *state.Fault
	if errors.As(err, &fault) {
		return complaint{fault.What, fault.Remedy}
	}
	what, remedy, _ := strings.Cut(err.Error(), ": ")
	return complaint{what, remedy}
}

// checked reads text that check takes.
func checked(example string, check func(string) error) func(item) (string, complaint) {
	return func(v item) (string, complaint) {
		s, c := textLike(v, example)
		if c.none() {
			c = complaintOf(check(s))
		}
		return s, c
	}
}

// label reads the name of an island or a region, or "".
func label(v item) (string, complaint) {
	return checked("edge-1", func(s string) error {
		if s == "" {
			return nil
		}
		return state.CheckName(s)
	})(v)
}

var (
	nodeName  = checked("gpu-a", state.CheckName)
	modelName = checked("qwen3", state.CheckModel)
)

// inList reads one value of a list of texts.
func inList(check func(string) error) func(string) (string, complaint) {
	return func(s string) (string, complaint) { return s, complaintOf(check(s)) }
}

// nodeURL reads the URL of a node, in the form that every part of the router
// compares.
func nodeURL(v item) (string, complaint) {
	s, c := textLike(v, "http://10.0.0.11:8000")
	if c.none() {
		end, err := state.ParseEndpoint(s)
		return end.URL, complaintOf(err)
	}
	return s, c
}

// listenAddress reads host:port; empty allows "".
func listenAddress(empty bool) func(item) (string, complaint) {
	return func(v item) (string, complaint) {
		s, c := textLike(v, "127.0.0.1:8080")
		if !c.none() || (empty && s == "") {
			return s, c
		}
		const remedy = "write host:port, such as 127.0.0.1:8080, [::1]:8080 or :8080"
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return s, complaint{"not host:port", remedy}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
			return s, complaint{fmt.Sprintf("port %q is not a number from 0 to 65535", short(port)), remedy}
		}
		if host == "" || host == "localhost" {
			return s, complaint{}
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return s, complaint{fmt.Sprintf("host %q is not an address of this machine", short(host)), remedy}
		}
		return s, complaint{}
	}
}

// isLoopback reports whether a listen address is reached from this host only.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// isPublic reports whether a listen address is one that only public networks
// lead to. Of a name, and of all addresses of the host (0.0.0.0), that is not
// known: there each report is judged when it comes.
func isPublic(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && !addr.IsUnspecified() && !report.Private(addr)
}

// route reads a path of an HTTP route.
func route(v item) (string, complaint) {
	s, c := textLike(v, "/health")
	if c.none() && (!strings.HasPrefix(s, "/") || len(s) > 1024 ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' })) {
		c = complaint{"not a path", "write a path such as /health, without spaces or #"}
	}
	return s, c
}

// choice reads one of several words.
func choice(words ...string) func(item) (string, complaint) {
	return func(v item) (string, complaint) {
		remedy := "write " + strings.Join(words, ", ")
		if i := strings.LastIndex(remedy, ", "); i >= 0 {
			remedy = remedy[:i] + " or" + remedy[i+1:]
		}
		if v.kind == kindText || v.kind == kindBool {
			if slices.Contains(words, v.text) {
				return v.text, complaint{}
			}
		}
		if v.kind != kindText {
			return "", wrongType(v, "a word", remedy)
		}
		if near := nearest(v.text, words); near != "" {
			return "", complaint{"not a value of this key", fmt.Sprintf("did you mean %s? %s", near, remedy)}
		}
		return "", complaint{"not a value of this key", remedy}
	}
}

func plain(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// boolean reads true or false.
func boolean(v item) (bool, complaint) {
	if v.kind == kindBool && (v.text == "true" || v.text == "false") {
		return v.text == "true", complaint{}
	}
	if v.kind == kindBool {
		return false, complaint{"not written as YAML 1.2 has it", "write true or false"}
	}
	return false, wrongType(v, "a boolean", "write true or false")
}

// number reads a finite number within bounds.
func number(lo, hi float64) func(item) (float64, complaint) {
	return func(v item) (float64, complaint) {
		remedy := fmt.Sprintf("write a number from %s to %s", showNumber(lo), showNumber(hi))
		if v.kind != kindNumber {
			return 0, wrongType(v, "a number", remedy)
		}
		f, err := strconv.ParseFloat(v.text, 64)
		switch {
		case err != nil || !decimal.MatchString(v.text):
			return 0, complaint{"not a decimal number", remedy}
		case !(f >= lo && f <= hi):
			return 0, complaint{"out of range", remedy}
		}
		return f, complaint{}
	}
}

func showNumber(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// decimal is how numbers are written: no octal, hex, underscores or infinity.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// integer reads a whole number within bounds.
func integer(lo, hi int) func(item) (int, complaint) {
	return func(v item) (int, complaint) {
		remedy := fmt.Sprintf("write a whole number from %d to %d", lo, hi)
		if v.kind != kindNumber {
			return 0, wrongType(v, "a whole number", remedy)
		}
		n, err := strconv.Atoi(v.text)
		switch {
		case !decimal.MatchString(v.text) || strings.Contains(v.text, "."):
			return 0, complaint{"not a whole decimal number", remedy}
		case err != nil || n < lo || n > hi:
			return 0, complaint{"out of range", remedy}
		}
		return n, complaint{}
	}
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// size reads bytes: a plain number, or one with a binary unit.
func size(lo, hi int64) func(item) (int64, complaint) {
	return func(v item) (int64, complaint) {
		remedy := fmt.Sprintf("write bytes or a size with B, KiB, MiB, GiB or TiB, from %s to %s", showSize(lo), showSize(hi))
		if v.kind != kindNumber && v.kind != kindText {
			return 0, wrongType(v, "a size", remedy)
		}
		digits, unit := v.text, int64(1)
		if v.kind == kindText {
			cut := strings.IndexFunc(v.text, func(r rune) bool { return r < '0' || r > '9' })
			i := -1
			if cut > 0 {
				i = slices.IndexFunc(sizeUnits, func(u struct {
					name  string
					bytes int64
				},
				) bool {
					return u.name == v.text[cut:]
				})
			}
			if i < 0 {
				return 0, complaint{"not a size", remedy}
			}
			digits, unit = v.text[:cut], sizeUnits[i].bytes
		}
		if !decimal.MatchString(digits) || strings.Contains(digits, ".") {
			return 0, complaint{"not a whole number of its unit", remedy}
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > math.MaxInt64/unit || n*unit < lo || n*unit > hi {
			return 0, complaint{"out of range", remedy}
		}
		return n * unit, complaint{}
	}
}

func showSize(n int64) string {
	for _, u := range sizeUnits {
		if n > 0 && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// duration reads a duration as Go writes it. off allows 0s below lo.
func duration(lo, hi time.Duration, off bool) func(item) (time.Duration, complaint) {
	return func(v item) (time.Duration, complaint) {
		remedy := fmt.Sprintf("write a duration such as 500ms, 30s or 5m, from %v to %v", lo, hi)
		if off && lo > 0 {
			remedy += ", or 0s for off"
		}
		if v.kind == kindNumber {
			return 0, complaint{"a number where a duration is wanted", "add its unit, such as " + short(v.text) + "s; " + remedy}
		}
		if v.kind != kindText {
			return 0, wrongType(v, "a duration", remedy)
		}
		d, err := time.ParseDuration(v.text)
		switch {
		case err != nil:
			return 0, complaint{"not a duration", remedy}
		case off && d == 0:
		case d < lo || d > hi:
			return 0, complaint{"out of range", remedy}
		}
		return d, complaint{}
	}
}

// autoDuration reads a duration or the word auto.
func autoDuration(lo, hi time.Duration) func(item) (AutoDuration, complaint) {
	plain := duration(lo, hi, true)
	return func(v item) (AutoDuration, complaint) {
		if v.kind == kindText && v.text == "auto" {
			return AutoDuration{Auto: true}, complaint{}
		}
		d, c := plain(v)
		if !c.none() {
			c.remedy += ", or auto"
		}
		return AutoDuration{Value: d}, c
	}
}

func showDuration(d time.Duration) string { return d.String() }

func showAuto(d AutoDuration) string {
	if d.Auto {
		return "auto"
	}
	return d.Value.String()
}

// switchedDuration reads off, auto or a duration; off is zero.
func switchedDuration(lo, hi time.Duration) func(item) (AutoDuration, complaint) {
	plain := duration(lo, hi, false)
	return func(v item) (AutoDuration, complaint) {
		switch {
		case v.kind == kindText && v.text == "off", v.kind == kindBool && v.text == "false":
			return AutoDuration{}, complaint{}
		case v.kind == kindText && v.text == "auto":
			return AutoDuration{Auto: true}, complaint{}
		}
		d, c := plain(v)
		if !c.none() {
			c.remedy += ", or off or auto"
		}
		return AutoDuration{Value: d}, c
	}
}

func showSwitched(d AutoDuration) string {
	if d == (AutoDuration{}) {
		return "off"
	}
	return showAuto(d)
}

// prefixOf reads a CIDR or an address.
func prefixOf(s string) (netip.Prefix, complaint) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() {
			return p, complaint{"the address has bits beyond its prefix", "write " + p.Masked().String()}
		}
		return p, complaint{}
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), complaint{}
	}
	return netip.Prefix{}, complaint{"not an address or CIDR", "write one such as 10.0.0.0/8 or 192.0.2.7"}
}

// shownName prints a name so that it reads back as text, quoted only where it
// must be.
func shownName(s string) string {
	if s != "" && state.CheckName(s) == nil && !decimal.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "~", "-", "."}, strings.ToLower(s)) {
		return s
	}
	return quote(s)
}
