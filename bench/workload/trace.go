package workload

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// Azure reads a trace of Azure's LLM inference service (2023): a line a request with
// its time, prompt and answer tokens. Each arrival becomes times arrivals of the same
// lengths, spread evenly from it to the next. The trace says nothing of contents, so
// no prompt shares anything.
func Azure(file string, times int) (*Workload, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read Azure trace: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	rows := csv.NewReader(f)
	rows.FieldsPerRecord, rows.ReuseRecord = 3, true
	w := &Workload{Name: "azure", Contents: 1}
	var start time.Time
	for line := 1; ; line++ {
		row, err := rows.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read Azure trace %s: %w", file, err)
		}
		if line == 1 {
			continue // names of the columns
		}
		at, errAt := time.Parse("2006-01-02 15:04:05.999999999", row[0])
		prompt, errPrompt := strconv.Atoi(row[1])
		output, errOutput := strconv.Atoi(row[2])
		if errAt != nil || errPrompt != nil || errOutput != nil {
			return nil, fmt.Errorf("read Azure trace %s, line %d: %q is not a time and two numbers of tokens", file, line, row)
		}
		if start.IsZero() {
			start = at
		}
		w.Requests = append(w.Requests, Request{AtNs: at.Sub(start).Nanoseconds(), Prompt: int32(max(1, prompt)), Output: int32(max(1, output))})
	}
	return w.multiply(file, times)
}

// Mooncake reads a trace of Mooncake's (Kimi's) conversations: a JSON object a line,
// with the contents of its blocks. Arrivals are recorded in ticks of 3 s and are
// spread evenly inside each. Each becomes times arrivals whose contents are their
// own, spread evenly from it to the next: as many fleets' users in one.
func Mooncake(file string, times int) (*Workload, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read Mooncake trace: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	w := &Workload{Name: "mooncake", Contents: 1}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		var row struct {
			Timestamp    int64    `json:"timestamp"` // ms
			InputLength  int32    `json:"input_length"`
			OutputLength int32    `json:"output_length"`
			HashIDs      []uint32 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("read Mooncake trace %s, line %d: %w", file, number, err)
		}
		r := Request{AtNs: row.Timestamp * 1e6, Prompt: max(1, row.InputLength), Output: max(1, row.OutputLength)}
		r.Contents = row.HashIDs[:min(len(row.HashIDs), int(r.Prompt)/BlockTokens)]
		for i := range r.Contents {
			r.Contents[i]++ // 0 is no content
			w.Contents = max(w.Contents, int(r.Contents[i])+1)
		}
		w.Requests = append(w.Requests, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read Mooncake trace %s: %w", file, err)
	}
	w.spread(3e9)
	return w.multiply(file, times)
}

// spread moves requests of one tick apart, evenly.
func (w *Workload) spread(tickNs int64) {
	for from := 0; from < len(w.Requests); {
		to := from + 1
		for to < len(w.Requests) && w.Requests[to].AtNs/tickNs == w.Requests[from].AtNs/tickNs {
			to++
		}
		start := w.Requests[from].AtNs / tickNs * tickNs
		for i := from; i < to; i++ {
			w.Requests[i].AtNs = start + tickNs*int64(i-from)/int64(to-from)
		}
		from = to
	}
}

// multiply makes times requests of each.
func (w *Workload) multiply(file string, times int) (*Workload, error) {
	if len(w.Requests) < 2 || times < 1 {
		return nil, fmt.Errorf("read trace %s: %d requests, %d times: want two requests and one time or more", file, len(w.Requests), times)
	}
	one := w.Requests
	if !slices.IsSortedFunc(one, func(a, b Request) int { return cmp.Compare(a.AtNs, b.AtNs) }) {
		return nil, fmt.Errorf("read trace %s: its arrivals are not in order: sort its lines by time", file)
	}
	mean := (one[len(one)-1].AtNs - one[0].AtNs) / int64(len(one)-1)
	w.Requests = make([]Request, 0, len(one)*times)
	for i := range one {
		gap := mean
		if i+1 < len(one) {
			gap = one[i+1].AtNs - one[i].AtNs
		}
		for k := range times {
			r := one[i]
			r.AtNs += gap * int64(k) / int64(times)
			r.Contents = shift(r.Contents, uint32(k*w.Contents))
			r.Key = mix(uint64(len(w.Requests) + 1))
			if n := len(r.Contents); n > 0 { // the first block may be everybody's
				r.Key = mix(uint64(r.Contents[min(1, n-1)]))
			}
			w.Requests = append(w.Requests, r)
		}
	}
	w.Contents *= times
	w.SpanNs = w.Requests[len(w.Requests)-1].AtNs + 1
	return w, nil
}

func shift(contents []uint32, by uint32) []uint32 {
	if by == 0 || len(contents) == 0 {
		return contents
	}
	moved := make([]uint32, len(contents))
	for i := range contents {
		moved[i] = contents[i] + by
	}
	return moved
}
