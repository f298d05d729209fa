package controlplane

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"warmpath/controlplane/config"
)

// Memory returns what bodies and answers may take under a configuration, and what
// there is: of this host, or of the control group that the process is in. 0 is not
// known, or no bound.
func Memory(c *config.Config) (budget, all int64) {
	return memoryBudget(c.Limits.MemoryBytes), memoryOf("/")
}

// memoryBudget is what bodies and answers may take: what was configured, else
// half of the memory that this host, or the control group that the process is in,
// has. 0, no bound, is what is left where neither can be read.
func memoryBudget(configured int64) int64 {
	if configured > 0 {
		return configured
	}
	return memoryOf("/") / 2
}

// memoryOf reads the least of what the host has and the process's control groups
// allow (version 2), below a root; 0 = not known.
func memoryOf(root string) int64 {
	least := hostMemory(filepath.Join(root, "proc/meminfo"))
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(own)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for ; ; group = filepath.Dir(group) { // every ancestor's limit counts
			if n := memoryMax(filepath.Join(root, "sys/fs/cgroup", group, "memory.max")); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return least
}

func memoryMax(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return n
}

func hostMemory(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
