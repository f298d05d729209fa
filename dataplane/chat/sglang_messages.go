package chat

import "math"

// sglangMessages turns the messages of a request into what the template gets.
// The template always adds its generation prompt: a last message of the
// assistant is given as one of the user, or, if it is to be continued, left out
// and encoded on its own.
func (p *preparation) sglangMessages(messages Value, continued bool) (Value, error) {
	list := p.m.List()
	for i := range messages.Len() {
		message, err := p.sglangMessage(messages.At(i))
		if err != nil {
			return None(), err
		}
		p.m.Append(list, message)
	}
	last := list.At(list.Len() - 1)
	role, _ := last.Get("role")
	content, _ := last.Get("content")
	if !role.Is("assistant") || !content.IsString() {
		return list, nil
	}
	if !continued {
		user := p.m.Dict(2)
		p.m.Set(user, "role", p.m.Copy("user"))
		p.m.Set(user, "content", content)
		list.ref.items[list.Len()-1] = user
		return list, nil
	}
	if list.Len() == 1 {
		return None(), raised("continue_final_message: there is no message before")
	}
	if content.Truth() {
		p.in.Suffix = content
	}
	list.ref.items = list.ref.items[:list.Len()-1]
	return list, nil
}

// sglangMessage rebuilds one message: the fields of the class in their order,
// without those that are null. Of a user's message only role and content are.
func (p *preparation) sglangMessage(message Value) (Value, error) {
	role, _ := message.Get("role")
	user := role.Is("user")
	if !user && !role.Is("system") && !role.Is("assistant") && !role.Is("tool") && !role.Is("function") &&
		!role.Is("developer") && !role.Is("latest_reminder") && !role.Is("root") {
		return None(), inexact("messages: a role that is not known, or in capital letters")
	}
	given, said := message.Get("content")
	if user && (!said || given.IsNone()) {
		return None(), raised("messages: content of a user must not be null")
	}
	content, err := p.sglangContent(role, given)
	if err != nil {
		return None(), err
	}
	// A list of parts is put behind the other fields, a text in its place.
	parts := content.Kind() == KindList || given.Kind() == KindList && p.d.format == ContentParts
	out := p.m.Dict(6)
	p.m.Set(out, "role", role)
	if !parts {
		p.m.Set(out, "content", content)
	}
	if !user {
		if err := p.sglangFields(message, out); err != nil {
			return None(), err
		}
	}
	if parts {
		p.m.Set(out, "content", content)
	}
	return out, nil
}

func (p *preparation) sglangFields(message, out Value) error {
	if role, _ := out.Get("role"); role.Is("tool") {
		p.in.Features |= FeatureTools
	}
	for _, field := range [...]string{"tools", "prefix", "phase"} {
		if value, ok := message.Get(field); ok && !value.IsNone() {
			return inexact("messages: %s is not followed here", field)
		}
	}
	for _, field := range [...]string{"tool_call_id", "name", "reasoning_content"} {
		value, ok := message.Get(field)
		if !ok || value.IsNone() {
			continue
		}
		if !value.IsString() {
			return raised("messages: %s must be a text", field)
		}
		if field == "reasoning_content" {
			p.in.Features |= FeatureOptions
		}
		p.m.Set(out, field, value)
	}
	calls, ok := message.Get("tool_calls")
	if !ok || calls.IsNone() {
		return nil
	}
	if calls.Kind() != KindList {
		return raised("messages: tool_calls must be a list")
	}
	p.in.Features |= FeatureTools
	list, err := p.sglangCalls(out, calls)
	if err != nil {
		return err
	}
	p.m.Set(out, "tool_calls", list)
	return nil
}

// sglangCalls rebuilds calls of functions: id, index, type, function with name
// and arguments, null where they are not said. Arguments of the assistant that
// are text become the object that the text must be.
func (p *preparation) sglangCalls(message, calls Value) (Value, error) {
	role, _ := message.Get("role")
	list := p.m.List()
	for i := range calls.Len() {
		call := calls.At(i)
		function, _ := call.Get("function")
		id, index, kind := optional(call, "id"), optional(call, "index"), optional(call, "type")
		name, arguments := optional(function, "name"), optional(function, "arguments")
		if function.Kind() != KindDict || !isTextOrNone(id) || !isTextOrNone(name) ||
			!index.IsNone() && index.Kind() != KindInt || !kind.IsNone() && !kind.Is("function") {
			return None(), raised("messages: a call of a function in a form that is not known")
		}
		if _, ok := call.Get("type"); ok && kind.IsNone() {
			return None(), raised("messages: the type of a call must be function")
		}
		if arguments.IsString() && role.Is("assistant") {
			var err error
			if arguments, err = p.sglangArguments(arguments); err != nil {
				return None(), err
			}
		}
		inner := p.m.Dict(2)
		p.m.Set(inner, "name", name)
		p.m.Set(inner, "arguments", arguments)
		outer := p.m.Dict(4)
		p.m.Set(outer, "id", id)
		p.m.Set(outer, "index", index)
		p.m.Set(outer, "type", Text(textFunction))
		p.m.Set(outer, "function", inner)
		p.m.Append(list, outer)
	}
	return list, nil
}

func isTextOrNone(v Value) bool { return v.IsString() || v.IsNone() }

// sglangArguments reads the text of arguments as orjson does, which knows no
// int beyond 64 bits.
func (p *preparation) sglangArguments(text Value) (Value, error) {
	object, err := p.m.readArguments(p.m.Bytes(text))
	switch {
	case err != nil && ClassOf(err) == Malformed:
		return None(), raised("messages: arguments of a call are no JSON")
	case err != nil:
		return None(), err
	case object.Kind() != KindDict:
		return None(), raised("messages: arguments of a call are no object")
	case !fitsOrjson(object):
		return None(), inexact("messages: a number in arguments of a call is too large")
	}
	return object, nil
}

func fitsOrjson(v Value) bool {
	switch v.Kind() {
	case KindInt:
		_, ok := v.Int64()
		return ok
	case KindFloat:
		f, _ := v.Float64()
		return !math.IsInf(f, 0)
	case KindList:
		for i := range v.Len() {
			if !fitsOrjson(v.At(i)) {
				return false
			}
		}
	case KindDict:
		for i := range v.Len() {
			if _, value := v.Entry(i); !fitsOrjson(value) {
				return false
			}
		}
	}
	return true
}

// sglangContent turns the content of a message into what the template gets:
// texts of parts joined by spaces, or a list of parts. Thoughts are left out.
func (p *preparation) sglangContent(role, content Value) (Value, error) {
	switch content.Kind() {
	case KindUndefined, KindNone:
		return Text(nil), nil
	case KindString:
		return content, nil
	case KindList:
	default:
		return None(), inexact("messages: content is neither a text nor a list")
	}
	p.in.Features |= FeatureParts
	parts, texts := p.m.List(), p.m.List()
	textOnly, media := true, false
	for i := range content.Len() {
		given := content.At(i)
		kind, _ := given.Get("type")
		text, _ := given.Get("text")
		switch {
		case kind.Is("text") && text.IsString():
			p.m.Append(texts, text)
			p.m.Append(parts, p.textPart(text))
		case kind.Is("tool_reference"):
			textOnly = false
			p.m.Append(parts, given)
		case role.Is("assistant") && (kind.Is("thinking") || kind.Is("reasoning")):
		case (kind.Is("image_url") || kind.Is("video_url") || kind.Is("audio_url") || kind.Is("input_audio")) && !role.Is("tool"):
			// A template that wants texts gets nothing of media, nor does the model.
			textOnly, media = false, p.d.format == ContentParts
			p.in.Features |= FeatureMedia
			p.m.Append(parts, p.sglangMedia(kind))
		default:
			return None(), inexact("messages: a part of content of a type that is not followed here")
		}
	}
	if media {
		p.in.Reason = "the prompt is known up to the first image, audio or video"
	}
	if p.d.format == ContentString || role.Is("tool") && textOnly {
		return p.m.joined(" ", texts), nil
	}
	return parts, nil
}

func (p *preparation) sglangMedia(kind Value) Value {
	if p.unknown {
		return p.textPart(p.unknownText())
	}
	part := p.m.Dict(1)
	switch {
	case kind.Is("image_url"):
		p.m.Set(part, "type", p.m.Copy("image"))
	case kind.Is("video_url"):
		p.m.Set(part, "type", p.m.Copy("video"))
	default:
		p.m.Set(part, "type", p.m.Copy("audio"))
	}
	return part
}
