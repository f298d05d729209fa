package scan

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestLeadingInteger(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200000 {
		v := r.IntN([]int{10, 100, 1000, 100000, 10000000, 100000000}[r.IntN(6)])
		digits := strconv.Itoa(v)
		b := []byte(digits)
		for len(b) < 8 {
			b = append(b, byte(r.IntN(256)))
		}
		want := len(digits)
		for want < 8 && b[want]-'0' <= 9 {
			want++
		}
		n64, _ := strconv.Atoi(string(b[:want]))
		got, n := leadingInteger(binary.LittleEndian.Uint64(b))
		if n != want || got != uint32(n64) {
			t.Fatalf("%q: %d of %d digits, want %d of %d", b, got, n, n64, want)
		}
	}
	if _, n := leadingInteger(binary.LittleEndian.Uint64([]byte("x1234567"))); n != 0 {
		t.Errorf("%d digits in a word without a leading one", n)
	}
}

// TestTokenIDForms puts ids of every length and spacing in front of each other.
func TestTokenIDForms(t *testing.T) {
	ids := []string{"0", "7", "12", "123456", "9999999", "10000000", "99999999", "4294967295", "4294967296", "-1", "1.0", "1e1", `"x"`, "null", "[1]", "[]"}
	for _, a := range ids {
		for _, b := range ids {
			for _, comma := range []string{",", ", ", " ,", ",  ", "\n,\n"} {
				for _, form := range []string{"[%s]", "[[%s],[%[1]s]]", "[[5],[%s]]"} {
					list := a + comma + b + comma + "1" + comma + "2" + comma + a
					body := []byte(`{"prompt":` + fmt.Sprintf(form, list) + `,"model":"m"}`)
					if s, err := scanAll(body); err != nil {
						t.Errorf("body %q: %v", body, err)
					} else {
						checkAgainstTwin(t, body, s)
					}
				}
			}
		}
	}
}
