package field

import "testing"

func TestIs(t *testing.T) {
	for _, name := range []string{"content-length", "Content-Length", "CONTENT-LENGTH"} {
		if !Is([]byte(name), "content-length") {
			t.Errorf("%q is not taken for content-length", name)
		}
	}
	for _, name := range []string{"", "content-lengt", "content_length", "content-length ", "content\rlength"} {
		if Is([]byte(name), "content-length") {
			t.Errorf("%q is taken for content-length", name)
		}
	}
}

func TestDecimal(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "007": 7, "999999999999999999": 999999999999999999} {
		if n, ok := Decimal([]byte(text)); !ok || n != want {
			t.Errorf("%q is %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "-1", "+1", "1 ", "0x1", "1_0", "1000000000000000000"} {
		if n, ok := Decimal([]byte(text)); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}
