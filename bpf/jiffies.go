package bpf

import (
	"fmt"
	"math"
	"time"
)

// tickRates are what CONFIG_HZ of kernel/Kconfig.hz can be, but for Alpha's.
var tickRates = [...]int{100, 250, 300, 1000}

// TicksPerSecond measures, in a tenth of a second, how many jiffies one has.
func TicksPerSecond() (int, error) {
	var o jiffiesObjects
	if err := loadJiffiesObjects(&o, nil); err != nil {
		return 0, fmt.Errorf("load program jiffies: %w", lacking(err))
	}
	defer o.Close()
	read := func() (uint32, error) {
		ticks, _, err := o.Jiffies.Test(make([]byte, 14)) // an Ethernet header: the least there may be
		if err != nil {
			return 0, fmt.Errorf("run program jiffies: %w", err)
		}
		return ticks, nil
	}
	before, err := read()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	<-time.After(100 * time.Millisecond)
	after, err := read()
	if err != nil {
		return 0, err
	}
	return nearestRate(float64(after-before) / time.Since(began).Seconds()), nil
}

func nearestRate(measured float64) int {
	best := tickRates[0]
	for _, r := range tickRates {
		if math.Abs(measured-float64(r)) < math.Abs(measured-float64(best)) {
			best = r
		}
	}
	return best
}
