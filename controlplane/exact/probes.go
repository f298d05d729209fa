package exact

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"warmpath/dataplane/prompt"
)

// probe is a conversation whose tokens an engine is asked for. %q stands for
// the model's name.
type probe struct {
	class prompt.Class
	form  prompt.Form
	body  string
}

// probes are what an engine must agree on before a class of requests is taken
// to be exact. They hold what renderers are known to differ in: several turns,
// white space at the borders, text that looks like a special token, numbers
// that Python writes in its own way, arguments as text, null content, parts. What
// some template refuses (a turn of the system, identifiers of calls that have
// not nine letters and digits) is not in all of a class.
var probes = []probe{
	{prompt.ClassPlain, prompt.FormChat, `{"messages":[{"role":"user","content":"Hello, how are you?"}]}`},
	{prompt.ClassPlain, prompt.FormChat, `{"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"  Name 3 rivers\n\nand a lake. "}]}`},
	{prompt.ClassPlain, prompt.FormChat, `{"messages":[{"role":"user","content":"Wer bist du? 你是谁？ 🙂"},{"role":"assistant","content":"Ein Modell.\n"},{"role":"user","content":"I'll ask: 12345 + 0.5?"}]}`},
	{prompt.ClassPlain, prompt.FormChat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"<think>\nhm\n</think>\n\nb"},{"role":"user","content":"c\tÀé <|im_end|> \u00e9"}]}`},
	{prompt.ClassPlain, prompt.FormChat, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"x = {\"a\": [1, 2]}\r\n"},{"role":"assistant","content":""},{"role":"user","content":"go on"}]}`},
	{prompt.ClassPlain, prompt.FormCompletion, `{"prompt":"Once upon a time,  there were 12 of them.\n\n"}`},

	{prompt.ClassTools, prompt.FormChat, `{"messages":[{"role":"user","content":"Weather in Rome?"}],"tools":[{"type":"function","function":{"name":"weather","description":"Today's weather","parameters":{"type":"object","properties":{"city":{"type":"string","description":"Städte & <towns>"},"days":{"type":"integer","minimum":1,"default":1}},"required":["city"]}}}]}`},
	{prompt.ClassTools, prompt.FormChat, `{"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"number","minimum":0.0,"maximum":1e-7,"enum":[1.0,2.5,10000000000000000000000]}},"additionalProperties":false}}},{"type":"function","function":{"name":"g","description":null,"parameters":{}}}]}`},
	{prompt.ClassTools, prompt.FormChat, `{"messages":[{"role":"user","content":"Rome?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1abcdefgh","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Rome\", \"days\": 2, \"f\": 1.0, \"n\": null}"}}]},{"role":"tool","tool_call_id":"call_1abcdefgh","content":"{\"t\": 21.5}"},{"role":"user","content":"And Oslo?"}],"tools":[{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]}`},
	{prompt.ClassTools, prompt.FormChat, `{"messages":[{"role":"system","content":"Use tools."},{"role":"user","content":"two"},{"role":"assistant","content":"Calling.","tool_calls":[{"id":"aaaaaaaa1","type":"function","function":{"name":"a","arguments":"{}"}},{"id":"bbbbbbbb2","type":"function","function":{"name":"b","arguments":"{\"q\": [\"ü\", true]}"}}]},{"role":"tool","tool_call_id":"aaaaaaaa1","content":"1"},{"role":"tool","tool_call_id":"bbbbbbbb2","content":"2"}],"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b","description":"b's"}}]}`},

	{prompt.ClassParts, prompt.FormChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"One."},{"type":"text","text":"Two?"}]}]}`},
	{prompt.ClassParts, prompt.FormChat, `{"messages":[{"role":"system","content":[{"type":"text","text":"sys "}]},{"role":"user","content":[{"type":"text","text":"\nq\n"}]},{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":"r"}]}`},

	{prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"enable_thinking":false}}`},
	{prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"enable_thinking":true}}`},
	{prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hel"}],"add_generation_prompt":false,"continue_final_message":true}`},
	{prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}],"add_generation_prompt":false}`},

	{prompt.ClassTools | prompt.ClassParts, prompt.FormChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"Rome?"}]}],"tools":[{"type":"function","function":{"name":"w","description":"d"}}]}`},
	{prompt.ClassTools | prompt.ClassParts, prompt.FormChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"Rome?"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"abcdefgh1","type":"function","function":{"name":"w","arguments":"{\"c\": 1}"}}]},{"role":"tool","tool_call_id":"abcdefgh1","content":[{"type":"text","text":"21"}]}],"tools":[{"type":"function","function":{"name":"w","parameters":{"type":"object"}}}]}`},
	{prompt.ClassTools | prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":"Rome?"}],"tools":[{"type":"function","function":{"name":"w","description":"d"}}],"chat_template_kwargs":{"enable_thinking":false}}`},
	{prompt.ClassParts | prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],"chat_template_kwargs":{"enable_thinking":false}}`},
	{prompt.ClassTools | prompt.ClassParts | prompt.ClassOptions, prompt.FormChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],"tools":[{"type":"function","function":{"name":"w","description":"d"}}],"chat_template_kwargs":{"enable_thinking":false}}`},
}

// bodyFor is the probe's request for a model.
func (p *probe) bodyFor(model string) []byte {
	name, _ := json.Marshal(model)
	return append(append([]byte(`{"model":`), name...), append([]byte(","), p.body[1:]...)...)
}

// asked are the fields of a request that name its prompt: what engines take on
// the route that tells tokens. Others they may refuse.
var asked = map[string]bool{
	"model": true, "messages": true, "tools": true, "prompt": true, "add_generation_prompt": true,
	"continue_final_message": true, "add_special_tokens": true, "chat_template_kwargs": true,
}

// question is body, a JSON object, with nothing but what names its prompt, in
// its order.
func question(body []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errNoObject, err)
	}
	out := []byte{'{'}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok || !asked[name] {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(strconv.AppendQuote(out, name), ':'), value...)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return append(out, '}'), nil
}

var errNoObject = errors.New("the body is no JSON object")
