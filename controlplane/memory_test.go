package controlplane

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryOf(t *testing.T) {
	const meminfo = "MemFree: 1 kB\nMemTotal:       2048 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"host alone":         {map[string]string{"proc/meminfo": meminfo}, 2 << 20},
		"own group":          {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000000\n"}, 1e6},
		"a group above":      {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "500000\n"}, 5e5},
		"more than there is": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9000000000\n"}, 2 << 20},
		"version 1":          {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a\n"}, 2 << 20},
		"nothing to read":    {nil, 0},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryOf(root); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}
