package config

import (
	"os"
	"testing"

	"warmpath/scenariotest"
)

// The example that users copy is what the schema says.
func TestExampleFile(t *testing.T) {
	const path = "warmpath.example.yaml"
	text := Example()
	if scenariotest.Rewriting() {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("%s differs from Example(): run the tests with -rewrite", path)
	}
	c, err := Load(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Nodes, want.Models = c.Nodes, c.Models
	if diff := c.Diff(want); len(diff) > 0 {
		t.Errorf("the example is not the default: %v", diff)
	}
}
