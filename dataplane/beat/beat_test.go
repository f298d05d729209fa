package beat

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWait: whoever begins when is there at the multiples from the second time on, each
// once, although timers end early and late.
func TestWait(t *testing.T) {
	const period = 25 * time.Millisecond
	for _, late := range []time.Duration{0, 1, 12 * time.Millisecond, 13 * time.Millisecond, period - 1} {
		synctest.Test(t, func(t *testing.T) {
			<-time.After(late)
			<-time.After(Wait(period))
			began := time.Now()
			if off := began.Sub(began.Round(period)); off != 0 {
				t.Errorf("begun %v late, the first moment is %v off", late, off)
			}
			for i := range 1000 {
				off := time.Duration(i%5-2) * time.Microsecond
				<-time.After(Wait(period) + off)
			}
			if took := time.Since(began).Round(time.Millisecond); took != 1000*period {
				t.Errorf("1000 moments took %v", took)
			}
		})
	}
}
