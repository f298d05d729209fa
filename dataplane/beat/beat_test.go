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

// TestUntil: the first moment that is not before a time.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock begins at a whole second
		const moment = 25 * time.Millisecond
		<-time.After(60 * time.Millisecond)
		now := time.Now()
		for at, want := range map[time.Duration]time.Duration{
			-time.Hour: 0, -15 * time.Millisecond: 0, 0: 15 * time.Millisecond, 1: 15 * time.Millisecond,
			15 * time.Millisecond: 15 * time.Millisecond, 15*time.Millisecond + 1: 40 * time.Millisecond, time.Hour: time.Hour + 15*time.Millisecond,
		} {
			if got := Until(now.Add(at), moment); got != want {
				t.Errorf("in %v: %v, want %v", at, got, want)
			}
		}
	})
}
