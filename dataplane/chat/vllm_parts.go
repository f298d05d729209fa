package chat

import "bytes"

// billingHeader begins a line that vLLM takes out of system messages, since it
// is another one in each request (0.32.0, _strip_claude_code_billing_header).
var billingHeader = []byte("x-anthropic-billing-header")

// These stand for what is not known here: in the first variables of a request
// with media, where what the template gets is not known at all, and in the
// second. They part at the first character and differ in length.
const (
	unknownText  = "\x01"
	unknownOther = "\x02 something in place of media"
)

var textText = []byte("text")

// vllmContent turns the content of a message into what the template gets:
// one text, the parts of a list joined by lines, or a list of parts.
func (p *preparation) vllmContent(role, content Value) (Value, error) {
	system := role.Is("system")
	switch content.Kind() {
	case KindUndefined, KindNone:
		return p.contentOf(p.m.List(), false), nil
	case KindString:
		if !system || !p.hasBillingHeader(content) {
			if p.d.format == ContentString {
				return content, nil
			}
			return p.m.List(p.textPart(content)), nil
		}
		rest, ok := p.withoutHeader(content)
		if !ok {
			return p.contentOf(p.m.List(), false), nil
		}
		return p.contentOf(p.m.List(p.textPart(rest)), false), nil
	case KindList:
		return p.vllmParts(content, system)
	}
	return None(), inexact("messages: content is neither a text nor a list")
}

// contentOf gives parts in the form that the template wants. media says that
// something stands before or between the texts that is not known.
func (p *preparation) contentOf(parts Value, media bool) Value {
	if p.d.format != ContentString {
		return parts
	}
	if media { // vLLM puts placeholders of the model in front of the texts
		return p.unknownText()
	}
	texts := p.m.List()
	for i := range parts.Len() {
		text, ok := parts.At(i).Get("text")
		if !ok {
			text, _ = parts.At(i).Get("name")
		}
		if text.Truth() { // vLLM leaves out what is empty
			p.m.Append(texts, text)
		}
	}
	return p.m.joined("\n", texts)
}

func (p *preparation) vllmParts(list Value, system bool) (Value, error) {
	p.in.Features |= FeatureParts
	parts := p.m.List()
	media := false
	for i := range list.Len() {
		part, known, err := p.vllmPart(list.At(i), system)
		if err != nil {
			return None(), err
		}
		if !known {
			media = true
			p.in.Features |= FeatureMedia
			p.in.Reason = "the prompt is known up to the first image, audio or video"
		}
		if part.Kind() == KindDict {
			p.m.Append(parts, part)
		}
	}
	return p.contentOf(parts, media), nil
}

// vllmPart rebuilds one part (vLLM 0.32.0, _parse_chat_message_content_part).
// An undefined Value is a part that is left out; known is false for media.
func (p *preparation) vllmPart(part Value, system bool) (out Value, known bool, err error) {
	kind, _ := part.Get("type")
	if uuid, ok := part.Get("uuid"); !kind.IsString() || ok && !uuid.IsNone() {
		return p.vllmMedia(part, kind)
	}
	field := ""
	switch {
	case kind.Is("text"), p.from == Responses && (kind.Is("input_text") || kind.Is("output_text")):
		field = "text"
	case kind.Is("refusal"):
		field = "refusal"
	case kind.Is("thinking"):
		field = "thinking"
	case kind.Is("tool_reference"):
		name, _ := part.Get("name")
		if !name.IsString() {
			return Value{}, false, inexact("messages: a tool_reference without name")
		}
		out = p.m.Dict(2)
		p.m.Set(out, "type", kind)
		p.m.Set(out, "name", name)
		return out, true, nil
	default:
		return p.vllmMedia(part, kind)
	}
	text, _ := part.Get(field)
	if !text.IsString() {
		return Value{}, false, inexact("messages: a part of content of type %s without its text", field)
	}
	if system && kind.Is("text") && p.hasBillingHeader(text) {
		rest, ok := p.withoutHeader(text)
		if !ok {
			return Value{}, true, nil
		}
		text = rest
	}
	out = p.textPart(text)
	p.addExtraFields(out, part)
	return out, true, nil
}

// vllmMedia gives what the template sees of an image, audio or video: its kind
// and the fields that vLLM does not know.
func (p *preparation) vllmMedia(part, kind Value) (out Value, known bool, err error) {
	modality := ""
	for _, media := range mediaFields {
		if _, ok := part.Get(media.field); ok {
			modality = media.modality
			break
		}
	}
	if modality == "" {
		return Value{}, false, inexact("messages: a part of content of a type that is not known")
	}
	if p.unknown {
		return p.textPart(p.unknownText()), false, nil
	}
	out = p.m.Dict(4)
	p.m.Set(out, "type", p.m.Copy(modality))
	p.addExtraFields(out, part)
	return out, false, nil
}

// mediaFields are the fields that make a part one of media, in vLLM's order.
var mediaFields = [...]struct{ field, modality string }{
	{"image_url", "image"},
	{"image_embeds", "image"},
	{"audio_embeds", "audio"},
	{"video_embeds", "video"},
	{"audio_url", "audio"},
	{"input_audio", "audio"},
	{"video_url", "video"},
}

func (p *preparation) unknownText() Value {
	if p.unknown {
		return p.m.Copy(unknownOther)
	}
	return p.m.Copy(unknownText)
}

func (p *preparation) textPart(text Value) Value {
	part := p.m.Dict(2)
	p.m.Set(part, "type", Text(textText))
	p.m.Set(part, "text", text)
	return part
}

// addExtraFields adds the fields of a part that none of vLLM's parts has
// (0.32.0, _KNOWN_CONTENT_PART_FIELDS).
func (p *preparation) addExtraFields(out, part Value) {
	for i := range part.Len() {
		key, value := part.Entry(i)
		switch string(key.text) {
		case "audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url",
			"input_audio", "name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid",
			"video_embeds", "video_url":
		default:
			p.m.addEntry(out.ref, key, value)
		}
	}
}

func (p *preparation) hasBillingHeader(text Value) bool {
	// No character of the header needs an escape; a text that uses some for it
	// all the same is compared decoded.
	raw, ok := text.Raw()
	if !ok || raw.Escaped {
		return bytes.HasPrefix(p.m.Bytes(text), billingHeader)
	}
	return bytes.HasPrefix(raw.Bytes, billingHeader)
}

// withoutHeader drops the first line; ok is false if that is all there is.
func (p *preparation) withoutHeader(text Value) (rest Value, ok bool) {
	_, after, _ := bytes.Cut(p.m.Bytes(text), []byte("\n"))
	return Text(after), len(after) > 0
}

// continuedContent appends to a message what marks its end for Render.
func (p *preparation) continuedContent(content Value) (Value, error) {
	tag := p.m.Copy(continueTag)
	if content.IsString() {
		return p.m.concat(content, tag), nil
	}
	for i := content.Len() - 1; i >= 0; i-- {
		part := content.At(i)
		text, ok := part.Get("text")
		if !ok {
			continue
		}
		marked := p.m.Dict(part.Len())
		p.addOthers(marked, part)
		p.m.Set(marked, "text", p.m.concat(text, tag))
		content.ref.items[i] = marked
		return content, nil
	}
	return None(), raised("continue_final_message: the last message has no text")
}
