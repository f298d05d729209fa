package takeover

import (
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
)

const socketFile = "takeover.sock"

// Path is where the router for these clients waits to be taken over from: in the
// state folder if there is one, else in the runtime folder of its user (as
// XDG_RUNTIME_DIR says, "" = it does not), under a name made of the address. The
// folder is made if need be. It is "", with the reason, if there is no place that
// two starts of one configuration would agree on.
func Path(stateDir, runtimeDir, listen string) (path, why string) {
	dir, file := stateDir, socketFile
	if dir == "" {
		if _, port, err := net.SplitHostPort(listen); err != nil || port == "0" {
			return "", "the clients' port is not a fixed one, and there is no state_dir"
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(listen))
		file = fmt.Sprintf("%016x.sock", h.Sum64())
		if dir = "/run/warmpath"; runtimeDir != "" {
			dir = filepath.Join(runtimeDir, "warmpath")
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Sprintf("there is no folder for its socket (%v); set state_dir", err)
	}
	return filepath.Join(dir, file), ""
}
