package stamp

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRoundTrip(t *testing.T) {
	chunk := []byte(`data: {"id":"x",` + Field + `,"choices":[]}`)
	if _, ok := Find(chunk); ok {
		t.Error("an empty stamp was found")
	}
	for _, ns := range []int64{1, 1e9, 25_140_571_474_946, math.MaxInt64} {
		at := At(chunk)
		Put(chunk[at:at+Digits], ns)
		if got, ok := Find(chunk); !ok || got != ns {
			t.Errorf("found %d, %v, want %d", got, ok, ns)
		}
		if !json.Valid(chunk[len("data: "):]) {
			t.Errorf("not JSON: %s", chunk)
		}
	}
}

func TestNoStamp(t *testing.T) {
	for _, chunk := range []string{"", `"t":"`, `"t":"123"`, `"t":"000000000000000012x"`, `{"choices":[]}`, `"t":"9999999999999999999"`} {
		if ns, ok := Find([]byte(chunk)); ok {
			t.Errorf("%q: found %d", chunk, ns)
		}
	}
}

func TestNowIsTheKernelsClock(t *testing.T) {
	for range 100 {
		before := monotonic(t)
		now := Now()
		after := monotonic(t)
		if slack := int64(20 * time.Microsecond); now < before-slack || now > after+slack {
			t.Fatalf("%d is not within %d and %d", now, before, after)
		}
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

func TestStampsDoNotAlloc(t *testing.T) {
	chunk := []byte(Field)
	if n := testing.AllocsPerRun(100, func() {
		Put(chunk[At(chunk):], Now())
		_, _ = Find(chunk)
	}); n != 0 {
		t.Errorf("%v allocations a stamp", n)
	}
}
