"""Renders prompts for a simulated engine: what a client sends becomes the text
that vLLM 0.32.0 would tokenize, with Python's own jinja2 set up as
transformers 5.0.0 does it.

    python3 render.py MODEL_FOLDER

MODEL_FOLDER holds tokenizer_config.json, and may hold chat_template.jinja.
Frames on standard input and output are a length in decimal digits, a newline,
and so many bytes of JSON. First this program sends {"ready": "jinja2 VERSION"}
or {"error": TEXT}; then it answers each {"route": "chat" | "tokenize", "body":
REQUEST} with {"text": PROMPT}, or {"error": TEXT} where vLLM answers 400. It
ends with its input.

Facts of vLLM are those of protocol.py, renderers/chat_utils.py and
renderers/hf.py in its package; facts of pydantic, that a validated TypedDict
has its declared keys first, in the order of the declaration, were tried out.
"""

import copy
import json
import os
import sys
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox

# Parameters of apply_chat_template that pass even when no template names them.
STANDARD = {"tools", "documents", "add_generation_prompt", "continue_final_message"}

# How the keys of validated objects are ordered; others follow as they came.
TOOL_CALL = ("id", "function", "type")
CALLED_FUNCTION = ("arguments", "name")

# Part types that are text, and the key the text is under.
TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
# Keys of content parts that vLLM knows; of a text part it passes on the others.
KNOWN_PART_KEYS = {
    "type", "text", "refusal", "thinking", "closed", "name", "uuid", "data", "file", "image_url", "image_pil",
    "image_embeds", "audio_url", "audio_embeds", "input_audio", "video_url", "video_embeds", "prompt_embeds",
}
BILLING_HEADER = "x-anthropic-billing-header"


class BadRequest(Exception):
    """What vLLM answers with status 400."""


class GenerationBlocks(jinja2.ext.Extension):
    """The block tag `generation`, which marks text and does not change it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


class Template:
    """One chat template and what vLLM reads out of its source."""

    def __init__(self, source):
        env = environment()
        self.source = source
        self.compiled = env.from_string(source)
        tree = env.parse(source)
        self.variables = jinja2.meta.find_undeclared_variables(tree)
        self.takes_parts = loops_over_content(tree)
        self.knows_developer = '"developer"' in source or "'developer'" in source


def loops_over_content(tree):
    """Whether a template walks through the parts of a content, so that vLLM
    passes lists ("openai") and not joined text ("string")."""

    def reads(node, name, key=None):
        while isinstance(node, (jinja2.nodes.Filter, jinja2.nodes.Test)) or (
            isinstance(node, jinja2.nodes.Getitem) and isinstance(node.arg, jinja2.nodes.Slice)
        ):
            node = node.node
        if key is not None:
            if isinstance(node, jinja2.nodes.Getattr):
                found = node.attr
            elif isinstance(node, jinja2.nodes.Getitem) and isinstance(node.arg, jinja2.nodes.Const):
                found = node.arg.value
            else:
                return False
            if found != key:
                return False
            node = node.node
        return isinstance(node, jinja2.nodes.Name) and node.ctx == "load" and node.name == name

    lists = ["messages"]
    for name in lists:  # grows: names that are assigned what a known name has
        for assign in tree.find_all(jinja2.nodes.Assign):
            target = assign.target
            if reads(assign.node, name) and isinstance(target, jinja2.nodes.Name) and target.name not in lists:
                lists.append(target.name)
    loops = list(tree.find_all(jinja2.nodes.For))
    messages = [
        loop.target.name
        for loop in loops
        if isinstance(loop.target, jinja2.nodes.Name) and any(reads(loop.iter, name) for name in lists)
    ]
    inside_macros, parameters = set(), {}
    for macro in tree.find_all(jinja2.nodes.Macro):
        names = macro_content_parameters(tree, macro, lambda node: any(reads(node, m, "content") for m in messages))
        for loop in macro.find_all(jinja2.nodes.For):
            inside_macros.add(id(loop))
            if names:
                parameters[id(loop)] = names
    for loop in loops:
        over = loop.iter.name if isinstance(loop.iter, jinja2.nodes.Name) else None
        if any(reads(loop.iter, m, "content") for m in messages) or over in parameters.get(id(loop), ()):
            return True
        if over == "content" and id(loop) not in inside_macros:
            return True
    return False


def macro_content_parameters(tree, macro, is_content):
    """Names of a macro's parameters that some call passes a content to."""
    declared, found = [arg.name for arg in macro.args], set()
    for call in tree.find_all(jinja2.nodes.Call):
        if isinstance(call.node, jinja2.nodes.Name) and call.node.name == macro.name:
            found.update(name for name, arg in zip(declared, call.args) if is_content(arg))
            found.update(k.key for k in call.kwargs if k.key in declared and is_content(k.value))
    return found


class Model:
    """The chat templates and special tokens of a model folder."""

    def __init__(self, folder):
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as f:
            config = json.load(f)
        self.special = {}
        for key, value in config.items():
            if key.endswith("_token") and isinstance(value, dict):
                value = value.get("content")
            if key.endswith("_token") and isinstance(value, str):
                self.special[key] = value
        found = config.get("chat_template")
        alone = os.path.join(folder, "chat_template.jinja")
        if os.path.exists(alone):
            with open(alone, encoding="utf-8") as f:
                found = f.read()
        if isinstance(found, list):
            self.templates = {t["name"]: Template(t["template"]) for t in found}
        else:
            self.templates = {"default": Template(found)} if found else {}

    def template(self, tools):
        if tools is not None and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" not in self.templates:
            raise BadRequest(
                "As of transformers v4.44, default chat template is no longer allowed, "
                "so you must provide a chat template if the tokenizer does not define one."
            )
        return self.templates["default"]

    def render(self, body, route):
        if body.get("chat_template") is not None:
            raise BadRequest("Chat template is passed with request, but --trust-request-chat-template is not set.")
        tools = dumped_tools(body.get("tools"))
        template = self.template(tools)
        chat = conversation(body.get("messages"), template.takes_parts, route)
        if not template.knows_developer and any(m["role"] == "developer" for m in chat):
            chat = developers_as_system(chat)
        given = keyword_arguments(body, route)
        accepted = {k: v for k, v in given.items() if k in template.variables or k in STANDARD}
        values = {**self.special, "documents": None, "add_generation_prompt": False, **accepted, "tools": tools}
        go_on = values.pop("continue_final_message", False)
        if go_on and values["add_generation_prompt"]:
            raise BadRequest("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        try:
            if go_on:
                return continued(template, chat, values)
            return template.compiled.render(messages=chat, **values)
        except Exception as e:  # whatever a template does to a request is the request's fault
            raise BadRequest(str(e)) from e


def keyword_arguments(body, route):
    """The variables that the request sets: its chat_template_kwargs, and over
    them what it says in fields of their own, unless that is null or "auto"."""
    given = dict(body.get("chat_template_kwargs") or {})
    if unexpected := {"chat_template", "tokenize"} & given.keys():
        raise BadRequest(f"Found unexpected chat template kwargs from request: {unexpected}")
    fields = {
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "continue_final_message": body.get("continue_final_message", False),
    }
    if route == "chat":
        effort = body.get("reasoning_effort")
        fields["documents"], fields["reasoning_effort"] = body.get("documents"), effort
        if effort is not None and "enable_thinking" not in given:
            fields["enable_thinking"] = effort != "none"
    given.update({k: v for k, v in fields.items() if v is not None and v != "auto"})
    return given


def continued(template, chat, values):
    """The last message left open: rendered with a mark at its end, and cut there."""
    mark = "CONTINUE_FINAL_MESSAGE_TAG "
    chat = copy.deepcopy(chat)
    content = chat[-1]["content"]
    if isinstance(content, list):
        part = next(p for p in reversed(content) if "text" in p)
        content, part["text"] = part["text"], part["text"] + mark
    else:
        chat[-1]["content"] = content + mark
    text = template.compiled.render(messages=chat, **values)
    if content.strip() not in text or mark.strip() not in text:
        raise BadRequest("continue_final_message is set but the final message does not appear in the chat")
    end = text.rindex(mark.strip())
    return text[:end] if text[end : end + len(mark)] == mark else text[:end].rstrip()


def ordered(given, keys):
    return {**{k: given[k] for k in keys if k in given}, **{k: v for k, v in given.items() if k not in keys}}


def dumped_tools(tools):
    """Tools as their pydantic models dump them: declared fields only, in the
    declared order, absent descriptions and parameters as null."""
    if tools is None:
        return None
    dumped = []
    for tool in tools:
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, dict) or "name" not in function:
            raise BadRequest("tools: each tool needs the type function and a function with a name")
        defer = tool.get("defer_loading")
        out = {k: function.get(k) for k in ("name", "description", "parameters")}
        if function.get("strict") is not None:
            out["strict"] = function["strict"]
        inner = defer if function.get("defer_loading") is None else function["defer_loading"]
        if inner is not None:
            out["defer_loading"] = inner
        entry = {"type": "function", "function": out}
        if defer is not None:
            entry["defer_loading"] = defer
        dumped.append(entry)
    return dumped


def conversation(messages, takes_parts, route):
    if not isinstance(messages, list) or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise BadRequest("messages: Input should be a list of messages with a role")
    return [converted(m, takes_parts, route) for m in messages]


def converted(message, takes_parts, route):
    """One message as the template sees it."""
    role, content = message["role"], message.get("content")
    if content is None and role != "assistant":
        raise BadRequest(f"messages: content of a message with role {role} must not be null")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if role == "system":
        parts = without_billing_header(parts)
    parts = [p for p in (text_part(p) for p in parts) if p is not None]
    out = {"role": role, "content": parts if takes_parts else "\n".join(p["text"] for p in parts)}
    if role == "assistant":
        if message.get("tool_calls") is not None:
            out["tool_calls"] = [called(c) for c in message["tool_calls"]]
            if not out["tool_calls"]:
                del out["tool_calls"]
        reasoning = message.get("reasoning")
        if reasoning is None and route == "chat":  # /tokenize does not know the old name
            reasoning = message.get("reasoning_content")
        if reasoning is not None:
            out["reasoning"] = out["reasoning_content"] = reasoning
    elif role == "tool":
        if "tool_call_id" in message:
            out["tool_call_id"] = message["tool_call_id"]
        if takes_parts:
            out["content"] = "\n".join(p["text"] for p in parts)
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            out[key] = message[key]
    if role == "developer":
        out["tools"] = message.get("tools")
    return out


def text_part(part):
    """A part as {"type": "text", …}; None for one that has no text."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type")
    if kind not in TEXT_PARTS:
        raise BadRequest(f"At most 0 {str(kind).removesuffix('_url')}(s) may be provided in one prompt.")
    text = part.get(TEXT_PARTS[kind])
    if text is None and kind in ("text", "refusal"):
        return None
    if not isinstance(text, str):
        raise BadRequest(f"messages: a part of type {kind} has no text")
    return {"type": "text", "text": text, **{k: v for k, v in part.items() if k not in KNOWN_PART_KEYS}}


def without_billing_header(parts):
    kept = []
    for part in parts:
        text = part if isinstance(part, str) else part.get("text") if part.get("type") == "text" else None
        if isinstance(text, str) and text.startswith(BILLING_HEADER):
            text = text.partition("\n")[2]
            if not text:
                continue
            part = text if isinstance(part, str) else {**part, "text": text}
        kept.append(part)
    return kept


def called(call):
    """A tool call whose arguments are an object, whatever the client sent."""
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise BadRequest("chat completions only support assistant tool_calls of type 'function'.")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except json.JSONDecodeError:
            arguments = {}
    if not isinstance(arguments, dict):
        arguments = {}
    function = ordered({**function, "arguments": arguments}, CALLED_FUNCTION)
    return ordered({**call, "function": function}, TOOL_CALL)


def developers_as_system(chat):
    """For templates without the role: developers become system messages, and
    all system messages one in front."""
    chat = [{k: v for k, v in {**m, "role": "system"}.items() if k != "tools"} if m["role"] == "developer" else m for m in chat]
    system = [m for m in chat if m["role"] == "system"]
    if len(system) == 1 and chat[0] is system[0]:
        return chat
    texts = []
    for m in system:
        content = m["content"]
        if isinstance(content, list):
            content = "\n".join(p["text"] for p in content)
        if content:
            texts.append(content)
    return [{"role": "system", "content": "\n\n".join(texts)}, *(m for m in chat if m["role"] != "system")]


def send(value):
    data = json.dumps(value).encode()
    sys.stdout.buffer.write(b"%d\n%b" % (len(data), data))
    sys.stdout.buffer.flush()


def main():
    try:
        model = Model(sys.argv[1])
    except Exception as e:
        send({"error": f"{type(e).__name__}: {e}"})
        return
    send({"ready": "jinja2 " + jinja2.__version__})
    while line := sys.stdin.buffer.readline():
        request = json.loads(sys.stdin.buffer.read(int(line)).decode("utf-8", "replace"))
        try:
            text = model.render(request["body"], request["route"])
            text.encode()  # a lone surrogate has no bytes, and so no tokens
            send({"text": text})
        except (BadRequest, UnicodeEncodeError) as e:
            send({"error": str(e)})


main()
