package actuate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// placeholder finds {name} and {name+1000}. Braces around anything else are none.
var placeholder = regexp.MustCompile(`\{([a-z_]+)(?:\+([0-9]{1,5}))?\}`)

// portName is the one that may have a number behind it: a node has one port of its own
// and may listen on several.
const portName = "port"

// Fill puts a node's own into a text of the configuration: for {name} what values has
// for it, and for {port+1000} a thousand more than its port. What is not in values
// stays as it is.
func Fill(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		found := placeholder.FindStringSubmatch(p)
		value, ok := values[found[1]]
		switch {
		case !ok:
			return p
		case found[2] == "":
			return value
		}
		port, err := strconv.Atoi(value)
		if err != nil || found[1] != portName {
			return p
		}
		more, _ := strconv.Atoi(found[2]) // digits, and few
		return strconv.Itoa(port + more)
	})
}

// CheckPlaceholders returns an error that names the first placeholder that is not known.
func CheckPlaceholders(text string, known ...string) error {
	for _, found := range placeholder.FindAllStringSubmatch(text, -1) {
		switch {
		case !slices.Contains(known, found[1]):
			return fmt.Errorf("unknown placeholder %s: use {%s}", found[0], strings.Join(known, "}, {"))
		case found[2] != "" && found[1] != portName:
			return fmt.Errorf("placeholder %s: only {port} can have a number added", found[0])
		}
	}
	return nil
}

// PortsAhead are the numbers that a text adds to a node's port.
func PortsAhead(text string) (ahead []int) {
	for _, found := range placeholder.FindAllStringSubmatch(text, -1) {
		if found[1] == portName && found[2] != "" {
			more, _ := strconv.Atoi(found[2])
			ahead = append(ahead, more)
		}
	}
	return ahead
}
