package backend

import (
	"encoding/json"
	"fmt"
	"strings"
)

// BodyBytes is the length of the fixed chat completion's body.
const BodyBytes = 200

// answers are the bytes of every answer, head and body. Immutable.
type answers struct {
	of        [routeCount][]byte
	malformed []byte
	stream    []byte // the head of a stream
}

func newAnswers(model string) answers {
	a := answers{malformed: answer("400 Bad Request", "application/json", errorBody("malformed request", 400)), stream: []byte(streamHead)}
	a.of[routeNotFound] = answer("404 Not Found", "application/json", `{"detail":"Not Found"}`)
	a.of[routeTokenize] = a.of[routeNotFound]
	a.of[routeChat] = answer("200 OK", "application/json", chatBody())
	a.of[routeRender] = a.of[routeChat]
	a.of[routeFiles] = answer("200 OK", "application/json", filesBody())
	a.of[routeModels] = answer("200 OK", "application/json", ModelsBody(model, maxModelLen))
	a.of[routeHealth] = answer("200 OK", "", "")
	a.of[routeMetrics] = answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", MetricsBody(model))
	a.of[routeVersion] = answer("200 OK", "application/json", `{"version":"0.32.0"}`)
	return a
}

// answer writes the head as uvicorn does, without a date: the bytes are fixed.
func answer(status, kind, body string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %s\r\nserver: uvicorn\r\ncontent-length: %d\r\n", status, len(body))
	if kind != "" {
		fmt.Fprintf(&b, "content-type: %s\r\n", kind)
	}
	b.WriteString("\r\n")
	b.WriteString(body)
	return []byte(b.String())
}

// chatBody is a chat completion, its content filled up to BodyBytes.
func chatBody() string {
	const (
		head = `{"id":"chatcmpl-0","object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"`
		tail = `"},"finish_reason":"stop"}],"usage":{"total_tokens":9}}`
	)
	return head + strings.Repeat("y", BodyBytes-len(head)-len(tail)) + tail
}

// filesBody is a list of one file, its name filled up to BodyBytes: a GET that
// routers pass on.
func filesBody() string {
	const (
		head = `{"object":"list","data":[{"id":"file-0","object":"file","bytes":1,"created_at":1760000000,"purpose":"batch","filename":"`
		tail = `"}]}`
	)
	return head + strings.Repeat("y", BodyBytes-len(head)-len(tail)) + tail
}

func errorBody(message string, code int) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":"BadRequestError","param":null,"code":%d}}`, message, code)
}

// maxModelLen leaves room for the largest body that the benches send.
const maxModelLen = 1 << 20

// tokensAnswer has the shape of vLLM's POST /tokenize.
func tokensAnswer(ids []uint32, err error) []byte {
	if err != nil {
		return answer("400 Bad Request", "application/json", errorBody(err.Error(), 400))
	}
	text, err := json.Marshal(struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
	}{len(ids), maxModelLen, ids})
	if err != nil {
		panic("BUG: backend: numbers are no JSON: " + err.Error())
	}
	return answer("200 OK", "application/json", string(text))
}

// ModelsBody is vLLM's answer to GET /v1/models: one model, and the most tokens
// that it takes.
func ModelsBody(model string, maxModelLen int) string {
	return fmt.Sprintf(`{"object":"list","data":[{"id":%q,"object":"model","created":1760000000,"owned_by":"vllm",`+
		`"root":%q,"parent":null,"max_model_len":%d,"permission":[]}]}`, model, model, maxModelLen)
}

// MetricsBody has the series that routers read from vLLM, of an idle engine.
func MetricsBody(model string) string {
	series := []struct{ name, kind, labels, value string }{
		{"vllm:num_requests_running", "gauge", "", "0.0"},
		{"vllm:num_requests_waiting", "gauge", "", "0.0"},
		{"vllm:kv_cache_usage_perc", "gauge", "", "0.0"},
		{"vllm:prefix_cache_queries_total", "counter", "", "0.0"},
		{"vllm:prefix_cache_hits_total", "counter", "", "0.0"},
		{"vllm:prompt_tokens_total", "counter", "", "0.0"},
		{"vllm:generation_tokens_total", "counter", "", "0.0"},
		{"vllm:cache_config_info", "gauge", `block_size="16",num_gpu_blocks="32768",enable_prefix_caching="True",`, "1.0"},
	}
	var b strings.Builder
	for _, s := range series {
		fmt.Fprintf(&b, "# TYPE %s %s\n%s{%sengine=\"0\",model_name=%q} %s\n", s.name, s.kind, s.name, s.labels, model, s.value)
	}
	return b.String()
}
