package peers

import (
	"embed"
	"fmt"
	"io"
	"text/template"
)

//go:embed *.tmpl
var files embed.FS

// Values fill a template.
type Values struct {
	Listen string   // host:port that clients connect to
	Admin  string   // host:port of the admin listener; used by warmpath only
	Nodes  []string // host:port of each node
	Folder string   // the proxy's own folder for temporary files, absolute
	Root   bool     // the proxy is started by root
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
