package proxy

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pinSelf keeps all threads of this process on one core: the load that comes
// from here, and the reading of counters, must not take the proxy's. Threads
// that are started later inherit it, and so would children, which is why all of
// them are started by taskset.
func pinSelf(core int) error {
	var set unix.CPUSet
	set.Set(core)
	for range 2 { // a thread may have been started by one that was not yet pinned
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list own threads: %w", err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return fmt.Errorf("list own threads: %w", err)
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin thread %d to core %d: %w", tid, core, err)
			}
		}
	}
	return nil
}
