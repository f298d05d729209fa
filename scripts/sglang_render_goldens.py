#!/usr/bin/env python3
"""Writes the prompts that SGLang itself makes of chat requests.

    pip download --no-deps sglang==0.5.23 && unzip -d FOLDER sglang-*.whl
    PYTHON scripts/sglang_render_goldens.py FOLDER

Each chat request of dataplane/chat/testdata/requests.jsonl goes through SGLang's own
ChatCompletionRequest and OpenAIServingChat._process_messages, with each of TEMPLATES.
Only the modules in REAL run as they are; the rest of the package, which wants a GPU,
is stubbed, and so is the tokenizer: its encode keeps the text. The result goes to
dataplane/chat/testdata/sglang_VERSION.txt, as vllm_render_goldens.py has it, and

    REQUEST TEMPLATE suffix TEXT SUFFIX    SUFFIX is encoded on its own and appended

PYTHON needs transformers 5, jinja2, fastapi, openai, orjson, jsonschema and pydantic.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import types
from unittest.mock import MagicMock

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TESTDATA = REPOSITORY / "dataplane" / "chat" / "testdata"
TEMPLATES = ["variables_text", "variables_parts", "chatml_think", "observation"]
SPECIAL_TOKENS = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
REAL = {
    "sglang.srt.entrypoints.openai.protocol",
    "sglang.srt.entrypoints.openai.serving_chat",
    "sglang.srt.function_call.utils",
    "sglang.srt.parser.jinja_template_utils",
}


class Stub(types.ModuleType):
    """A module in which every name is there: classes for CamelCase, else mocks."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        camel = name[0].isupper() and not name.isupper()
        value = type(name, (), {"__module__": self.__name__}) if camel else MagicMock(name=name)
        setattr(self, name, value)
        return value


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] != "sglang":
            return None
        if name in REAL:
            return importlib.util.spec_from_file_location(name, self.folder / (name.replace(".", "/") + ".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


class Tokenizer:
    """Renders as transformers does; a text is its own encoding."""

    bos_token_id = None

    def __init__(self, template):
        self.chat_template = template

    def apply_chat_template(self, messages, tokenize, add_generation_prompt, tools, return_dict, documents=None, **kwargs):
        from transformers.utils.chat_template_utils import render_jinja_template

        if not messages:
            raise ValueError("empty conversation")
        rendered, _ = render_jinja_template(
            conversations=[messages],
            tools=tools,
            documents=documents,
            chat_template=self.chat_template,
            add_generation_prompt=add_generation_prompt,
            **{**SPECIAL_TOKENS, **kwargs},
        )
        return rendered[0]

    def encode(self, text, **_):
        return [text]


def serving(chat, utils, template):
    """An OpenAIServingChat with what _process_messages looks at."""
    server = object.__new__(chat.OpenAIServingChat)
    server.__dict__.update(
        chat_encoding_spec=None,
        default_chat_template_kwargs={},
        is_gemma4=False,
        is_gpt_oss=False,
        is_minimax_m3=False,
        reasoning_parser=None,
        tool_call_parser=None,
        _encoding_adapter=None,
        _prompt_text_round_trip_is_lossy=False,
        _reasoning_detector=None,
        _tokenizer_auto_adds_specials=False,
        template_manager=types.SimpleNamespace(
            chat_template_name=None,
            jinja_template_content_format=utils.detect_jinja_template_content_format(template),
            jinja_template_may_reorder_tool_results=utils.jinja_template_may_reorder_tool_results(template),
            python_chat_template=None,
            reasoning_config=None,
        ),
        tokenizer_manager=types.SimpleNamespace(
            tokenizer=Tokenizer(template),
            model_config=types.SimpleNamespace(is_multimodal=False),
            served_model_name="tiny",
        ),
    )
    # These choose constraints on the answer, not the prompt.
    for name in ("_patch_reasoning_skip_special_tokens", "_validate_media_content"):
        setattr(server, name, lambda *_: None)
    for name in ("_get_reasoning_from_request", "_takes_turn_grammar", "_requires_response_template_detokenization", "_thinking_requested"):
        setattr(server, name, lambda *_, **__: False)
    return server


def render(chat, protocol, server, body):
    request = protocol.ChatCompletionRequest.model_validate(body)
    error = server._validate_request(request)
    if error:
        raise ValueError(error)
    # _convert_to_internal_request does this before.
    effort = (request.chat_template_kwargs or {}).pop("reasoning_effort", None)
    if effort is not None:
        request.reasoning_effort = effort
    return server._process_messages(request, False).prompt_ids


def line_of(chat, protocol, server, request, template):
    head = f"{request['name']} {template}"
    try:
        texts = render(chat, protocol, server, json.loads(request["text"])["body"])
    except Exception as error:
        why = str(error).split("\n")[0]
        return f"{head} refused {json.dumps(type(error).__name__ + ': ' + why[:160])}"
    if not all(isinstance(text, str) for text in texts):
        return f"{head} ids {json.dumps(texts)}"
    quoted = " ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    return f"{head} {'ok' if len(texts) == 1 else 'suffix'} {quoted}"


def load(folder):
    """SGLang's modules chat, protocol and jinja_template_utils."""
    sys.meta_path.insert(0, Stubs(folder))
    import sglang.srt.utils

    sglang.srt.utils.GLM_MEDIA_CONFIG_KEYS = ()
    import sglang.srt.entrypoints.openai.protocol as protocol
    import sglang.srt.entrypoints.openai.serving_chat as chat
    import sglang.srt.parser.jinja_template_utils as utils

    chat.uses_hunyuan_reasoning_effort = lambda *_: False
    chat.get_serving = lambda: types.SimpleNamespace(trust_request_chat_template=False, allow_auto_truncate=False)
    chat.get_model = lambda: types.SimpleNamespace(context_length=None)
    # Without a segmented template the whole text is encoded in one piece.
    chat.render_chat_segments = lambda *_, **__: None
    chat.parallel_prompt_encode = lambda tokenizer, text, _: tokenizer.encode(text)
    return chat, protocol, utils


def main():
    folder = pathlib.Path(sys.argv[1])
    chat, protocol, utils = load(folder)
    version = next(folder.glob("sglang-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    lines, formats = [], []
    servers = {}
    for path in sorted((TESTDATA / "templates").glob("*.jinja")):
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        servers[path.stem] = serving(chat, utils, source)
        formats.append(f"{path.stem} {servers[path.stem].template_manager.jinja_template_content_format}")
    with open(TESTDATA / "requests.jsonl", encoding="utf-8") as file:
        for text in file:
            request = {**json.loads(text), "text": text}
            if request["endpoint"] != "chat":
                continue
            for template in request.get("templates", TEMPLATES):
                lines.append(line_of(chat, protocol, servers[template], request, template))
    (TESTDATA / f"sglang_{version}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (TESTDATA / f"sglang_{version}_templates.txt").write_text("\n".join(formats) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
