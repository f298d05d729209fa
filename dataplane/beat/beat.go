package beat

import "time"

// Wait returns how long to wait for the next moment of a period: such moments lie at the
// multiples of the period on the wall clock, so that they are the same ones for all who
// have the same period, or a multiple of it. It is the period itself, less or more by up
// to a half at first, when the clock was set, and for who comes late; who comes late by
// more than half a period misses a moment. Any goroutine may call it.
func Wait(period time.Duration) time.Duration {
	// A timer that ends a little early by the wall clock, which runs faster and slower as
	// it is set right, has met the moment all the same.
	return Until(time.Now().Add(period/2+1), period)
}

// Until returns how long to wait for the first moment of a period that is not before a
// time, 0 if it has passed. The wall clock says where moments lie and nothing else: it
// may have been set since the time was reckoned. Any goroutine may call it.
func Until(at time.Time, period time.Duration) time.Duration {
	now := time.Now()
	at = now.Add(at.Sub(now)) // as the wall clock goes now
	return max(0, at.Add(period-1).Truncate(period).Sub(now))
}
