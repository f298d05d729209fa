package peers

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"net"
	"strings"
	"text/template"
)

//go:embed *.tmpl
var files embed.FS

// Values fill a template.
type Values struct {
	Listen string   // host:port that clients connect to
	Admin  string   // host:port of the admin or metrics listener of those that have one
	Nodes  []string // host:port of each node
	Folder string   // the proxy's own folder for temporary files, absolute
	Root   bool     // the proxy is started by root

	Model     string // the one that the nodes serve
	Tokenizer string // path of a tokenizer.json; "" = warmpath knows prompts by their text
	NoKernel  bool   // warmpath without the kernel's programs
	Buffered  bool   // nginx takes a request's body whole before it sends it on
	SizeBytes int    // of the bodies that will come; 0 = none
	BufBytes  int    // HAProxy's buffers; 0 = its default
}

// SmallBodies reports whether a request with its head fits into 16 KB.
func (v Values) SmallBodies() bool { return v.SizeBytes <= 12<<10 }

// Host is the host of an address.
func (Values) Host(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// Port is the port of an address.
func (Values) Port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// Render writes the configuration of the named peer.
func Render(w io.Writer, file string, v Values) error {
	t, err := template.ParseFS(files, file)
	if err != nil {
		return fmt.Errorf("read peer configuration %q: %w", file, err)
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("fill peer configuration %q: %w", file, err)
	}
	return nil
}

// Arguments reads a template of a command line: one argument a line, without
// empty lines and those that begin with '#'.
func Arguments(file string, v Values) ([]string, error) {
	var text bytes.Buffer
	if err := Render(&text, file, v); err != nil {
		return nil, err
	}
	var arguments []string
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			arguments = append(arguments, line)
		}
	}
	return arguments, nil
}
