package wrk

import (
	"fmt"
	"math"
	"strings"
)

// Chat bodies: so many different ones, with so many system prompts.
const (
	bodies  = 64
	systems = 8
)

var words = strings.Fields(`the node that holds a prefix answers before any other so we
	measure how long each request waits while queue and cache grow
	token block engine router fleet reads its own state from events`)

// ChatBodies returns what chat.lua posts, in its order, for load generators
// other than wrk: 64 bodies of exactly size bytes. With stream the last fields
// ask for an event stream. It panics when size leaves no room for a chat body;
// 400 bytes always do.
func ChatBodies(size int, model string, stream bool) [][]byte {
	tail := `],"max_tokens":16,"temperature":0}`
	if stream {
		tail = `],"max_tokens":20,"stream":true}`
	}
	all := make([][]byte, bodies)
	for i := range all {
		all[i] = chatBody(i, size, model, tail)
	}
	return all
}

func chatBody(index, size int, model, tail string) []byte {
	const most = 4096 // of one message
	frame := len(message("assistant", "")) + 1
	var b strings.Builder
	b.WriteString(`{"model":"` + model + `","messages":[`)
	b.WriteString(message("system", text(min(size/4, 16384), 7+index%systems)))
	turn := 0
	for left := size - b.Len() - len(tail); left > most+2*frame; left = size - b.Len() - len(tail) {
		role := []string{"user", "assistant"}[turn%2]
		b.WriteString("," + message(role, text(most-frame, 1000+index*100+turn)))
		turn++
	}
	if turn%2 == 1 {
		b.WriteString("," + message("assistant", "go on"))
	}
	last := size - b.Len() - len(tail) - len(message("user", "")) - 1
	if last < 1 {
		panic(fmt.Sprintf("BUG: wrk: no room for a chat body in %d bytes", size))
	}
	b.WriteString("," + message("user", text(last, 500+index)) + tail)
	return []byte(b.String())
}

func message(role, content string) string {
	return `{"role":"` + role + `","content":"` + content + `"}`
}

// text is n bytes as they stand in a JSON string. Lua's numbers are doubles, and
// the products are beyond their precision: so they are doubles here too.
func text(n, from int) string {
	seed := float64(from)
	draw := func() int {
		const period = 1 << 31
		product := float64(seed*1103515245) + 12345
		seed = product - math.Floor(product/period)*period
		return int(seed) / 65536 % len(words)
	}
	var b strings.Builder
	for i := 1; b.Len() < n; i++ {
		b.WriteString(words[draw()] + " ")
		if i%17 == 0 {
			b.WriteString(`\n`)
		}
		if i%41 == 0 {
			b.WriteString(`\"so\" `)
		}
	}
	if b.Len() == n {
		return b.String()
	}
	cut := strings.TrimRight(b.String()[:max(0, n-4)], `\`)
	return cut + strings.Repeat(".", n-len(cut))
}
