package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"warmpath/dataplane/fleet"

	"warmpath/scenariotest"
)

// show prints what is known of a sample.
func show(s Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "engine %s", s.Engine)
	for _, g := range []struct {
		name  string
		gauge fleet.Gauge
	}{
		{"queued", s.Queued},
		{"running", s.Running},
		{"kv_use", s.KVUse},
		{"hit_tokens", s.HitTokens},
		{"query_tokens", s.QueryTokens},
		{"prompt_tokens", s.PromptTokens},
		{"generated_tokens", s.GeneratedTokens},
		{"preemptions", s.Preemptions},
		{"start_seconds", s.StartSeconds},
	} {
		if g.gauge.Known {
			fmt.Fprintf(&b, "\n%s %.6g", g.name, g.gauge.Value)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{{"block_tokens", int64(s.BlockTokens)}, {"cache_tokens", s.CacheTokens}, {"ranks", int64(s.Ranks)}} {
		if n.value != 0 {
			fmt.Fprintf(&b, "\n%s %d", n.name, n.value)
		}
	}
	return b.String()
}

func TestDecodeScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/decode.txt", func(_ *testing.T, c scenariotest.Case) string {
		s, err := Decode(c.Command()[1], strings.NewReader(c.Rest()))
		if err != nil {
			return "error: " + err.Error()
		}
		return show(s)
	})
}

func TestModelsScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/models.txt", func(_ *testing.T, c scenariotest.Case) string {
		list, err := Models(strings.NewReader(c.Rest()))
		if err != nil {
			return "error: " + err.Error()
		}
		out := "engine " + list.Engine
		for _, m := range list.Models {
			out += fmt.Sprintf("\nid=%q max_model_len=%d owned_by=%q root=%q parent=%q", m.ID, m.MaxModelLen, m.OwnedBy, m.Root, m.Parent)
		}
		return out
	})
}

// Whole captured texts of real engines, not only excerpts.
func TestDecodeCaptured(t *testing.T) {
	paths, _ := filepath.Glob("../../../shared/data/http/*metrics*.txt")
	if len(paths) == 0 {
		t.Skip("no captured metrics texts beside this checkout")
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Decode(Auto, bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for name, g := range map[string]fleet.Gauge{
			"Queued": s.Queued, "Running": s.Running, "KVUse": s.KVUse, "HitTokens": s.HitTokens, "QueryTokens": s.QueryTokens,
			"PromptTokens": s.PromptTokens, "GeneratedTokens": s.GeneratedTokens, "Preemptions": s.Preemptions,
		} {
			if !g.Known {
				t.Errorf("%s: %s is unknown", path, name)
			}
		}
		if s.Engine != VLLM || s.BlockTokens < 32 || s.CacheTokens < 2080 || s.Ranks < 1 {
			t.Errorf("%s: %+v", path, s)
		}
		if twin, err := decodeWhole(Auto, text); err != nil || twin != s {
			t.Errorf("%s: whole text parsed: %+v, %v; chosen lines: %+v", path, twin, err, s)
		}
	}
}

// decodeWhole is the dumb twin of Decode: it parses every line of the text
// (without its comments, which would make histograms of TGI's sums).
func decodeWhole(engineName string, text []byte) (Sample, error) {
	var plain bytes.Buffer
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#")) {
			plain.Write(line)
		}
	}
	if plain.Len() > 0 && !bytes.HasSuffix(plain.Bytes(), []byte("\n")) {
		plain.WriteByte('\n')
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(&plain)
	if err != nil {
		return Sample{}, err
	}
	families := familyPool.New().(*families)
	families.take(all)
	d := byName(engineName)
	if d == nil {
		d = detect(families)
	}
	if d == nil || d.count(families) == 0 {
		return Sample{}, ErrNoMetrics
	}
	return d.sample(families), nil
}

// Whatever the whole parser accepts, choosing lines first must read the same.
func FuzzDecode(f *testing.F) {
	scenarios, err := os.ReadFile("testdata/decode.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range strings.Split(string(scenarios), "\ndecode ") {
		_, rest, _ := strings.Cut(c, "\n")
		input, _, _ := strings.Cut(rest, "----")
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Decode(Auto, bytes.NewReader(text))
		if twin, twinErr := decodeText(Auto, text); show(twin) != show(got) || (err == nil) != (twinErr == nil) {
			t.Fatalf("read: %+v, %v; in memory: %+v, %v", got, err, twin, twinErr)
		}
		for line := range bytes.Lines(text) {
			if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("{")) {
				return // a quoted name inside the braces: no engine writes it, and we do not read it
			}
		}
		want, wantErr := decodeWhole(Auto, text)
		switch {
		case wantErr == nil && err != nil:
			t.Fatalf("whole text: %+v; Decode: %v", want, err)
		case errors.Is(wantErr, ErrNoMetrics) && err == nil:
			t.Fatalf("whole text: nothing; Decode: %+v", got)
		case wantErr == nil && show(got) != show(want):
			t.Fatalf("whole text: %+v; Decode: %+v", want, got)
		}
	})
}

func FuzzModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"a","owned_by":"vllm","max_model_len":4096,"meta":{"n_ctx":1e3}}]}`))
	f.Add([]byte(`{"data":[null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Models(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, m := range list.Models {
			if m.ID == "" || m.MaxModelLen < 0 {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// endless yields one pattern for ever.
type endless struct{ pattern string }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.pattern)
	}
	return n, nil
}

func TestBounds(t *testing.T) {
	line := "vllm:num_requests_running{engine=\"0\"} 1\n"
	comment := "# " + strings.Repeat("c", 1021) + "\n"
	exact := strings.Repeat(comment, (MaxMetricsBytes-len(line))/len(comment)) + line
	exact += strings.Repeat("#", MaxMetricsBytes-len(exact))
	if _, err := Decode(Auto, strings.NewReader(exact)); err != nil {
		t.Errorf("a text of %d bytes: %v", len(exact), err)
	}
	if _, err := Decode(Auto, strings.NewReader(exact+"#")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := Decode(Auto, endless{"x"}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one endless line: %v", err)
	}
	long := "vllm:num_requests_running{engine=\"" + strings.Repeat("0", maxLineBytes) + "\"} 1\n"
	if _, err := Decode(Auto, strings.NewReader(long)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long line that matters: %v", err)
	}
	unwanted := strings.Repeat("z", 3*maxLineBytes) + "\n" + line
	if s, err := Decode(Auto, strings.NewReader(unwanted)); err != nil || s.Running.Value != 1 {
		t.Errorf("a long line that does not matter: %+v, %v", s, err)
	}
	if _, err := Models(endless{" "}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless models: %v", err)
	}
	entry := `{"id":"m"},`
	if _, err := Models(strings.NewReader(`{"data":[` + strings.Repeat(entry, MaxModels) + `{"id":"n"}]}`)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one model too many: %v", err)
	}
	list, err := Models(strings.NewReader(`{"data":[` + strings.Repeat(entry, MaxModels-1) + `{"id":"n"}]}`))
	if err != nil || len(list.Models) != MaxModels {
		t.Errorf("%d models: %d, %v", MaxModels, len(list.Models), err)
	}
	for text, want := range map[string]error{exact: nil, exact + "#": ErrTooLarge, long: ErrTooLarge, unwanted: nil} {
		if _, err := decodeText(Auto, []byte(text)); !errors.Is(err, want) {
			t.Errorf("in memory, %d bytes: %v, want %v", len(text), err, want)
		}
	}
	broken := io.MultiReader(strings.NewReader(line), errReader{})
	if _, err := Decode(Auto, broken); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a text that breaks off: %v", err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func BenchmarkDecode(b *testing.B) {
	text, err := os.ReadFile("../../../shared/data/http/dp2_metrics.txt")
	if err != nil {
		b.Skip("no captured metrics texts beside this checkout")
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(Auto, bytes.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeText(b *testing.B) {
	text, err := os.ReadFile("../../../shared/data/http/bs32_metrics_midflight.txt")
	if err != nil {
		b.Skip("no captured metrics texts beside this checkout")
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeText(Auto, text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeWhole(b *testing.B) {
	text, err := os.ReadFile("../../../shared/data/http/dp2_metrics.txt")
	if err != nil {
		b.Skip("no captured metrics texts beside this checkout")
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeWhole(Auto, text); err != nil {
			b.Fatal(err)
		}
	}
}
