package engine

import (
	"encoding/json"
	"strconv"
)

// sse writes the events of one stream into buf. The texts before and after
// what changes from event to event are made once.
type sse struct {
	x      *exchange
	a      *answer
	buf    []byte
	left   int  // events until the stream is to break; −1 = never
	broken bool // it is to break now

	head   []byte // `data: {"id":…,"model":…,"choices":[`
	before []byte // up to the text of an event
	words  *answerTable
	ids    bool // return_token_ids
	counts bool // continuous_usage_stats
}

// prepare makes the unchanging parts.
func (s *sse) prepare() {
	x := s.x
	object := "text_completion"
	if x.job.chat {
		object = "chat.completion.chunk"
	}
	s.head = append(s.head, `data: {"id":`...)
	s.head = append(s.head, quote(x.id)...)
	s.head = append(s.head, `,"object":"`+object+`","created":`...)
	s.head = strconv.AppendInt(s.head, x.created, 10)
	s.head = append(s.head, `,"model":`...)
	s.head = append(s.head, quote(x.job.model)...)
	s.head = append(s.head, `,"choices":[`...)
	if x.job.chat {
		s.before = append(s.before, `{"index":0,"delta":{"content":"`...)
	} else {
		s.before = append(s.before, `{"index":0,"text":"`...)
	}
	s.words = x.e.vocabulary.answers()
	s.ids = x.job.request.ReturnTokenIDs
	o := x.job.request.StreamOptions
	s.counts = o != nil && o.ContinuousUsageStats
}

// quote encodes a string for JSON.
func quote(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic("BUG: a string cannot be encoded: " + err.Error())
	}
	return b
}

// spend notes one event about to be written; false: the stream breaks first.
func (s *sse) spend() bool {
	if s.left == 0 {
		s.broken = true
		return false
	}
	if s.left > 0 {
		s.left--
	}
	return true
}

// tokens writes the events of answer tokens from (inclusive) to end
// (exclusive), one each; before the first token of a chat, its role.
func (s *sse) tokens(from, end, total int64) {
	if from == 0 && s.x.job.chat {
		if !s.spend() {
			return
		}
		s.role()
	}
	for i := from; i < end; i++ {
		if !s.spend() {
			return
		}
		s.token(i, i+1 == total)
	}
}

// role writes the first event of a chat.
func (s *sse) role() {
	s.buf = append(s.buf, s.head...)
	s.buf = append(s.buf, `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	if s.counts {
		s.usageSoFar(0)
	}
	s.buf = append(s.buf, `,"prompt_token_ids":`...)
	s.promptIDs(true)
	s.buf = append(s.buf, `,"prompt_text":null}`+"\n\n"...)
}

// token writes the event of one token. Chat has stop_reason in its last event
// only, text completions in every one.
func (s *sse) token(i int64, last bool) {
	chat := s.x.job.chat
	word := answerWord(s.a.start, int(i))
	s.buf = append(s.buf, s.head...)
	s.buf = append(s.buf, s.before...)
	s.buf = append(s.buf, s.words.text[word]...) // needs no escapes
	if chat {
		s.buf = append(s.buf, `"},"logprobs":null,"finish_reason":`...)
	} else {
		s.buf = append(s.buf, `","logprobs":null,"finish_reason":`...)
	}
	if last {
		s.buf = append(append(append(s.buf, '"'), s.x.job.reason...), '"')
	} else {
		s.buf = append(s.buf, "null"...)
	}
	if last || !chat {
		s.buf = append(s.buf, `,"stop_reason":null`...)
	}
	if !chat {
		s.buf = append(s.buf, `,"prompt_token_ids":`...)
		s.promptIDs(i == 0)
	}
	s.buf = append(s.buf, `,"token_ids":`...)
	if s.ids {
		s.buf = append(s.buf, '[')
		s.buf = strconv.AppendUint(s.buf, uint64(s.words.ids[word]), 10)
		s.buf = append(s.buf, "]}]"...)
	} else {
		s.buf = append(s.buf, "null}]"...)
	}
	if s.counts {
		s.usageSoFar(int(i) + 1)
	}
	s.buf = append(s.buf, "}\n\n"...)
}

// promptIDs writes the prompt's ids if this event is to have them.
func (s *sse) promptIDs(here bool) {
	if !here || !s.ids {
		s.buf = append(s.buf, "null"...)
		return
	}
	s.buf = append(s.buf, '[')
	for i, id := range s.x.job.prompt {
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		s.buf = strconv.AppendUint(s.buf, uint64(id), 10)
	}
	s.buf = append(s.buf, ']')
}

// usageSoFar writes the usage of continuous_usage_stats.
func (s *sse) usageSoFar(generated int) {
	s.usageHead(generated)
	s.buf = append(s.buf, `,"completion_tokens_details":null}`...)
}

func (s *sse) usageHead(generated int) {
	prompt := len(s.x.job.prompt)
	s.buf = append(s.buf, `,"usage":{"prompt_tokens":`...)
	s.buf = strconv.AppendInt(s.buf, int64(prompt), 10)
	s.buf = append(s.buf, `,"total_tokens":`...)
	s.buf = strconv.AppendInt(s.buf, int64(prompt+generated), 10)
	s.buf = append(s.buf, `,"completion_tokens":`...)
	s.buf = strconv.AppendInt(s.buf, int64(generated), 10)
}

// end writes the usage event, if it was asked for, and the end of the stream.
func (s *sse) end(total int64) {
	if o := s.x.job.request.StreamOptions; o != nil && o.IncludeUsage {
		s.buf = append(s.buf, s.head...)
		s.buf = append(s.buf, ']')
		s.usageHead(int(total))
		s.buf = append(s.buf, `,"prompt_tokens_details":{"cached_tokens":`...)
		s.buf = strconv.AppendInt(s.buf, s.a.cached.Load(), 10)
		if s.x.job.chat {
			s.buf = append(s.buf, `,"created_cache_tokens":`...)
			s.buf = strconv.AppendInt(s.buf, s.x.createdCacheTokens(s.a), 10)
		}
		s.buf = append(s.buf, `}},"system_fingerprint":"`+fingerprint+`"}`+"\n\n"...)
	}
	s.buf = append(s.buf, "data: [DONE]\n\n"...)
}
