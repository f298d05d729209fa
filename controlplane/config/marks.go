package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Mark says how packets to a node are marked. Both are kept plus 1; 0 leaves them
// as the host has them.
type Mark struct {
	DSCP     int // 0 to 63 (RFC 2474)
	Priority int // SO_PRIORITY, 0 to 15: what queueing disciplines sort by (tc-prio(8))
}

// Bounds of marks.
const (
	dscpMost     = 63
	priorityMost = 15
)

// dscpNames are the code points that have a name (RFC 2474, 2597, 3246, 5865, 8622).
var dscpNames = func() map[string]int {
	names := map[string]int{"ef": 46, "va": 44, "le": 1}
	for class := range 8 {
		names["cs"+strconv.Itoa(class)] = class << 3
	}
	for class := 1; class <= 4; class++ {
		for drop := 1; drop <= 3; drop++ {
			names[fmt.Sprintf("af%d%d", class, drop)] = class<<3 | drop<<1
		}
	}
	return names
}()

func dscpKey(m *Mark, otherwise string) entry {
	return leaf("dscp", `""`, "ef, af41, cs1 … or 0 to 63; empty = "+otherwise, &m.DSCP, dscp, showPlusOne)
}

func priorityKey(m *Mark, otherwise string) entry {
	return leaf("priority", `""`, "SO_PRIORITY, 0 to 15; empty = "+otherwise, &m.Priority, priority, showPlusOne)
}

// leastLowat is the least that may lie unsent: less would send half-empty segments.
const leastLowat = 4096

// lowat reads a size, or 0.
func lowat(v item) (int64, complaint) {
	n, c := size(0, 1<<30)(v)
	if c.none() && n != 0 && n < leastLowat {
		return 0, complaint{"out of range", "write 4KiB or more, or 0 for the host's own"}
	}
	return n, c
}

// dscp reads a code point, by name or number.
func dscp(v item) (int, complaint) {
	remedy := "write a name such as ef, af41 or cs1, a number from 0 to 63, or nothing in quotes for none"
	if v.kind == kindText {
		if point, ok := dscpNames[strings.ToLower(v.text)]; ok {
			return point + 1, complaint{}
		}
		if v.text == "" {
			return 0, complaint{}
		}
		return 0, complaint{"no code point has this name", remedy}
	}
	return plusOne(v, dscpMost, "a code point", remedy)
}

// priority reads a priority.
func priority(v item) (int, complaint) {
	if v.kind == kindText && v.text == "" {
		return 0, complaint{}
	}
	return plusOne(v, priorityMost, "a priority", "write a number from 0 to 15, or nothing in quotes for none")
}

func plusOne(v item, most int, what, remedy string) (int, complaint) {
	if v.kind != kindNumber {
		return 0, wrongType(v, what, remedy)
	}
	n, c := integer(0, most)(v)
	if !c.none() {
		c.remedy = remedy
		return 0, c
	}
	return n + 1, complaint{}
}

func showPlusOne(n int) string {
	if n == 0 {
		return `""`
	}
	return strconv.Itoa(n - 1)
}

// treating refuses what nobody would carry out: how connections to nodes are
// treated is up to the kernel's programs.
func (d *decoder) treating() {
	k := &d.config.Kernel
	if k.Mode != "off" && k.Mode != "passive" {
		return
	}
	given := map[string]string{}
	add := func(key, value string, is bool) {
		if is {
			given[key] = value
		}
	}
	add("kernel.user_timeout", showDuration(k.UserTimeout), k.UserTimeout != 0)
	add("kernel.notsent_lowat", showSize(k.NotSentLowatBytes), k.NotSentLowatBytes != 0)
	add("kernel.dscp", showPlusOne(k.Mark.DSCP), k.Mark.DSCP != 0)
	add("kernel.priority", showPlusOne(k.Mark.Priority), k.Mark.Priority != 0)
	for i := range d.config.Nodes {
		m := &d.config.Nodes[i].Mark
		add(fmt.Sprintf("nodes[%d].dscp", i), showPlusOne(m.DSCP), m.DSCP != 0)
		add(fmt.Sprintf("nodes[%d].priority", i), showPlusOne(m.Priority), m.Priority != 0)
	}
	for key, value := range given {
		d.refuse(key, d.places[key], value, complaint{
			"with kernel.mode " + k.Mode + " there is no program that would set it",
			"set kernel.mode to auto, require or lite, or remove the key",
		})
	}
}
