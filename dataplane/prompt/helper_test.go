package prompt

import (
	"testing"

	"warmpath/dataplane/scan"
)

// found is what package scan finds in a body.
func found(t testing.TB, body []byte) *scan.Result {
	t.Helper()
	var s scan.Scanner
	if _, err := s.Scan(body, true); err != nil {
		t.Fatal(err)
	}
	return s.Result()
}
