#!/usr/bin/env python3
"""Writes the prompts that vLLM itself makes of request bodies.

    ~/.cache/warmpath/vllm-cpu/venv/bin/python scripts/vllm_render_goldens.py

Each request of dataplane/chat/testdata/requests.jsonl goes through vLLM's own
protocol classes and its OnlineRenderer, as `vllm serve` and `vllm launch render` use
them, without an engine; with each of TEMPLATES, or the templates the request names.
The result goes to dataplane/chat/testdata/vllm_VERSION.txt:

    REQUEST TEMPLATE ok TEXT        the prompt, a JSON string
    REQUEST TEMPLATE special TEXT   the same; special tokens are added around it
    REQUEST TEMPLATE ids [...]      token ids of the request itself
    REQUEST TEMPLATE refused WHY    the client gets an error

A request that gives more than one prompt is shown by its first. What vLLM believes of
each template (content format, names it looks up) goes to vllm_VERSION_templates.txt.
Needs vLLM and the folder of a tokenizer (scripts/vllm-cpu.sh install).
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import pathlib

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_LOGGING_LEVEL="ERROR")

from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import renderer_from_config
from vllm.renderers.hf import _detect_content_format, _resolve_chat_template_kwargs
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.version import __version__
import transformers.utils.chat_template_utils as hf

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TESTDATA = REPOSITORY / "dataplane" / "chat" / "testdata"
TEMPLATES = ["variables_text", "variables_parts", "chatml_think", "observation"]
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


class Vllm:
    """One renderer a template, all over one tokenizer."""

    def __init__(self, folder):
        self.config = ModelConfig(model=str(folder), max_model_len=40960)
        self.renderer = renderer_from_config(VllmConfig(model_config=self.config))
        self.online = {}

    def of(self, template):
        if template not in self.online:
            self.online[template] = OnlineRenderer(
                model_config=self.config,
                renderer=self.renderer,
                request_logger=None,
                chat_template=read_template(template),
                chat_template_content_format="auto",
                enable_auto_tools=True,
                tool_parser="hermes",
            )
        return self.online[template]

    async def render(self, endpoint, template, body):
        """(TokenizeParams.add_special_tokens, engine input)"""
        online = self.of(template)
        if endpoint == "chat":
            request = ChatCompletionRequest.model_validate(body)
            result = await online.render_chat(request)
        elif endpoint == "messages":
            request = AnthropicServingMessages.to_chat_completion_request(
                AnthropicMessagesRequest.model_validate(body),
                merge_inline_system=AnthropicServingMessages._should_merge_inline_system(online),
            )
            result = await online.render_chat(request)
        elif endpoint == "completions":
            request = CompletionRequest.model_validate(body)
            result = await online.render_completion(request)
        else:
            request = ResponsesRequest.model_validate(body)
            if request.previous_response_id is not None:
                raise ValueError("the history is on the engine")
            result = await online.render_responses(request)
        if isinstance(result, ErrorResponse):
            raise ValueError(result.error.message)
        if endpoint == "responses":
            prompt = result.engine_input
        else:
            prompt = result[0] if endpoint == "completions" else result[1][0]
        return request.build_tok_params(self.config).add_special_tokens, prompt


def read_template(name):
    with open(TESTDATA / "templates" / (name + ".jinja"), encoding="utf-8", newline="") as file:
        return file.read()


async def line_of(vllm, request, template, tokenizer):
    head = f"{request['name']} {template}"
    try:
        # A fresh copy: vLLM changes the body it validates.
        special, prompt = await vllm.render(request["endpoint"], template, json.loads(request["text"])["body"])
    except Exception as error:
        why = str(error).split("\n")[0]
        return f"{head} refused {json.dumps(type(error).__name__ + ': ' + why[:160])}"
    text, ids = prompt.get("prompt"), prompt["prompt_token_ids"]
    if text is None:
        return f"{head} ids {json.dumps(ids)}"
    encoded = tokenizer.encode(text, add_special_tokens=special)
    if encoded != ids:
        return f"{head} changed {json.dumps(text)} {json.dumps(ids)}"
    return f"{head} {'special' if special else 'ok'} {json.dumps(text, ensure_ascii=False)}"


async def write(vllm, out):
    requests = []
    with open(TESTDATA / "requests.jsonl", encoding="utf-8") as file:
        for text in file:
            requests.append({**json.loads(text), "text": text})
    tokenizer = vllm.renderer.get_tokenizer()
    lines = []
    for request in requests:
        for template in request.get("templates", TEMPLATES):
            lines.append(await line_of(vllm, request, template, tokenizer))
            print(lines[-1][:120])
    (out / f"vllm_{__version__.split('+')[0]}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_templates(out, folders):
    lines = []
    for path in sorted(path for folder in folders for path in folder.glob("*.jinja")):
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        names = " ".join(sorted(_resolve_chat_template_kwargs(source)))
        lines.append(f"{path.stem} {_detect_content_format(source, default='string')} {names}")
    (out / f"vllm_{__version__.split('+')[0]}_templates.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path.home() / ".cache/warmpath/vllm-cpu/tiny")
    parser.add_argument("--templates", action="append", type=pathlib.Path, default=[])
    parser.add_argument("--out", type=pathlib.Path, default=TESTDATA)
    arguments = parser.parse_args()
    hf.datetime = FixedClock
    write_templates(arguments.out, arguments.templates or [TESTDATA / "templates"])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(write(Vllm(arguments.model), arguments.out))


if __name__ == "__main__":
    main()
