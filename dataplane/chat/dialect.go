package chat

import "sort"

// Engine is the inference server whose treatment of requests is followed.
type Engine uint8

const (
	// VLLM is vLLM. All facts about it were read in, and compared with, the
	// code of 0.32.0 (vllm/renderers/hf.py, chat_utils.py, params.py;
	// vllm/entrypoints/openai/chat_completion/protocol.py).
	VLLM Engine = iota
	// SGLang is SGLang. All facts about it were read in the code of 0.5.23
	// (sglang/srt/entrypoints/openai/serving_chat.py, protocol.py;
	// sglang/srt/parser/jinja_template_utils.py).
	SGLang
)

func (e Engine) String() string {
	if e == SGLang {
		return "sglang"
	}
	return "vllm"
}

// Endpoint is the kind of request that a body is.
type Endpoint uint8

const (
	ChatCompletions Endpoint = iota // /v1/chat/completions
	Completions                     // /v1/completions
	Messages                        // /v1/messages
	Responses                       // /v1/responses
)

// Level says how well a prompt is known.
type Level uint8

const (
	// LevelText: nothing is proved; the prompt has to be identified by the
	// text of the request.
	LevelText Level = iota
	// LevelPrefix: the rope is an exact beginning of the prompt. What follows
	// depends on what is not known here, such as the size of an image.
	LevelPrefix
	// LevelExact: the rope is the whole prompt.
	LevelExact
)

func (l Level) String() string {
	return [...]string{"text", "prefix", "exact"}[l]
}

// Features are what a request uses beyond plain text. Each combination is
// proved, and given up, on its own: see Features.String for the name.
type Features uint8

const (
	// FeatureTools: functions, calls of functions, or their answers.
	FeatureTools Features = 1 << iota
	// FeatureParts: the content of a message is a list.
	FeatureParts
	// FeatureOptions: keyword arguments of the template, reasoning, documents,
	// no generation prompt, a message to be continued.
	FeatureOptions
	// FeatureMedia: images, audio, video.
	FeatureMedia
	// FeatureCount is the number of combinations.
	FeatureCount Features = 1 << iota
)

var featureNames = [FeatureCount]string{
	"plain", "tools", "parts", "tools+parts",
	"options", "tools+options", "parts+options", "tools+parts+options",
	"media", "tools+media", "parts+media", "tools+parts+media",
	"options+media", "tools+options+media", "parts+options+media", "tools+parts+options+media",
}

// String names the combination, "plain" for none.
func (f Features) String() string { return featureNames[f&(FeatureCount-1)] }

// ContentFormat is the form in which a template gets the content of messages.
type ContentFormat uint8

const (
	// ContentAuto asks the template: see Template.ContentFormat.
	ContentAuto ContentFormat = iota
	// ContentString: one text.
	ContentString
	// ContentParts: a list of parts, called "openai" by the engines.
	ContentParts
)

// DialectOptions describe an engine as it was started with a model.
type DialectOptions struct {
	Engine Engine
	// Template is the model's chat template; nil if it has none, or one that
	// this package does not understand: then only Completions are prepared.
	Template *Template
	// SpecialTokens are the variables that the tokenizer adds: bos_token and
	// the like, as in tokenizer_config.json.
	SpecialTokens map[string]string
	// ContentFormat is what --chat-template-content-format (vLLM) says.
	ContentFormat ContentFormat
	// DefaultKwargs is the JSON object of --default-chat-template-kwargs, or
	// empty.
	DefaultKwargs []byte
	// ExcludeToolsWhenNone is --exclude-tools-when-tool-choice-none (vLLM).
	ExcludeToolsWhenNone bool
	// DisabledThinkingEffort is --anthropic-disabled-thinking-effort (vLLM);
	// empty for its default, which asks the template.
	DisabledThinkingEffort string
}

// Dialect turns bodies of requests into what the chat template gets, as one
// engine does with one model. It is immutable and shared.
type Dialect struct {
	options   DialectOptions
	special   []namedValue
	kwargs    []namedValue // of DefaultKwargs
	format    ContentFormat
	developer bool // the template knows the role "developer"
	inline    inlineSystem
}

type namedValue struct {
	name  string
	value Value
}

// NewDialect prepares a Dialect. Its error says which option is wrong.
func NewDialect(o DialectOptions) (*Dialect, error) {
	d := &Dialect{options: o, format: o.ContentFormat}
	for name, text := range o.SpecialTokens {
		d.special = append(d.special, namedValue{name, String(text)})
	}
	sort.Slice(d.special, func(i, j int) bool { return d.special[i].name < d.special[j].name })
	if len(o.DefaultKwargs) > 0 {
		kwargs, err := new(Machine).ReadJSON(o.DefaultKwargs)
		if err != nil {
			return nil, err
		}
		if kwargs.Kind() != KindDict {
			return nil, &Error{Class: Malformed, Message: "default arguments of the chat template are no JSON object"}
		}
		for i := range kwargs.Len() {
			key, value := kwargs.Entry(i)
			d.kwargs = append(d.kwargs, namedValue{string(key.text), value})
		}
	}
	if o.Template == nil {
		return d, nil
	}
	if d.format == ContentAuto || o.Engine == SGLang {
		d.format = o.Template.ContentFormat(o.Engine)
	}
	d.developer = o.Template.mentions(`"developer"`) || o.Template.mentions(`'developer'`)
	d.inline = inlineSystemOf(o.Template)
	if o.Engine == VLLM && o.DisabledThinkingEffort == "" {
		d.options.DisabledThinkingEffort = d.probeDisabledThinking()
	}
	return d, nil
}

// Input is a request prepared for its template. It is reused; the values in it
// live as long as the Machine's use and the body.
type Input struct {
	Level    Level
	Features Features
	// Reason says why the Level is LevelPrefix; empty for LevelExact. For
	// LevelText the error says it.
	Reason string
	// Vars is the dict of variables for Template.Render; undefined if there is
	// nothing to render.
	Vars Value
	// Text is the prompt itself, where the request says it (Completions).
	Text Value
	// IDs is a list of the prompt's token ids, where the request says them.
	IDs Value
	// More says that the request has further prompts than this first one.
	More bool
	// SpecialTokens says that the engine adds special tokens around the text,
	// as encode(…, add_special_tokens=True) does.
	SpecialTokens bool
	// Suffix is text whose ids follow those of the rendered text. It is encoded
	// on its own, and a begin-of-text token that this gives is dropped (SGLang,
	// continue_final_message).
	Suffix Value

	// other is Vars with other text in place of what is not known: the prompt is
	// known as far as both render the same. undefined for LevelExact.
	other Value
	// retry is Vars for a second try if the template raises (SGLang).
	retry Value
	// continued says that the last message ends in continueTag.
	continued bool
}

// Prepare reads a body and sets in. After an error, the level is LevelText:
// the error says why, and its class whether the engine will refuse the request
// (Raised, Malformed) or only this package does not know (Inexact, Limit). The
// values in in borrow body and m, which the caller resets.
func (d *Dialect) Prepare(m *Machine, e Endpoint, body []byte, in *Input) error {
	*in = Input{}
	request, err := m.ReadJSON(body)
	if err != nil {
		return err
	}
	if request.Kind() != KindDict {
		return raised("the body is no JSON object")
	}
	p := preparation{d: d, m: m, in: in, from: e}
	if err := p.request(request); err != nil {
		*in = Input{Features: in.Features}
		return err
	}
	if err := m.Err(); err != nil {
		*in = Input{Features: in.Features}
		return err
	}
	in.Level = LevelExact
	if in.Reason != "" {
		in.Level = LevelPrefix
	}
	return nil
}

// preparation is the work of one Prepare.
type preparation struct {
	d  *Dialect
	m  *Machine
	in *Input
	// from is the endpoint: what is converted from others than ChatCompletions
	// does not pass all of the checks of a chat request.
	from Endpoint
	// unknown is set while the second variables of a request with media are made:
	// in place of media stands other text.
	unknown bool
}

func (p *preparation) request(request Value) error {
	if p.from == Completions {
		return p.completions(request)
	}
	if p.d.options.Template == nil {
		return inexact("the model has no chat template that is known here")
	}
	switch {
	case p.d.options.Engine == SGLang && p.from == ChatCompletions:
		return p.sglangChat(request)
	case p.d.options.Engine == SGLang:
		return inexact("how SGLang converts this kind of request is not known")
	case p.from == ChatCompletions:
		return p.vllmChat(request)
	case p.from == Messages:
		return p.vllmAnthropic(request)
	}
	return p.vllmResponses(request)
}

// Render renders what Prepare made into out, which it resets, and says how well
// the prompt is known now. The error is the template's: the engine refuses the
// request if its class is Raised.
func (d *Dialect) Render(m *Machine, in *Input, out *Rope) (Level, error) {
	out.Reset()
	if in.Text.IsString() {
		return in.Level, m.appendText(out, in.Text)
	}
	if in.Vars.Kind() != KindDict {
		return in.Level, nil
	}
	err := d.options.Template.Render(m, in.Vars, out)
	if err != nil && ClassOf(err) == Raised && in.retry.Kind() == KindDict {
		out.Reset()
		err = d.options.Template.Render(m, in.retry, out)
	}
	if err == nil && in.continued {
		err = m.cutContinued(out)
	}
	if err != nil {
		return LevelText, err
	}
	if in.other.Kind() == KindDict {
		return LevelPrefix, d.cutUnknown(m, in, out)
	}
	return in.Level, nil
}

// cutUnknown keeps of out what the other variables render too.
func (d *Dialect) cutUnknown(m *Machine, in *Input, out *Rope) error {
	var other Rope
	err := d.options.Template.Render(m, in.other, &other)
	if err != nil && ClassOf(err) != Raised {
		return err
	}
	out.keepCommon(&other)
	return nil
}
