package scan

import "testing"

func TestScanDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var s Scanner
	for name, body := range map[string][]byte{
		"chat": chat4K(t), "tokens": tokenIDsBody(1000), "mixed": chatBody(mixedText(4000)),
		"escaped keys": []byte(`{"mod\u0065l":"m","messages":[{"r\u006fle":"u","content":[{"t\u0079pe":"te\u0078t","text":"x"}]}]}`),
	} {
		allocs := testing.AllocsPerRun(100, func() {
			s.Reset()
			for _, n := range []int{len(body) / 3, len(body) / 2, len(body)} {
				if done, err := s.Scan(body[:n], n == len(body)); err != nil || done != (n == len(body)) {
					t.Fatal(err)
				}
				s.Result()
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations a body", name, allocs)
		}
	}
	var buf []byte
	raw := []byte(`text with \n escapes \u00e9 \ud83d\ude00`)
	if allocs := testing.AllocsPerRun(100, func() { buf = AppendUnescaped(buf[:0], raw) }); allocs != 0 {
		t.Errorf("AppendUnescaped: %v allocations", allocs)
	}
}
