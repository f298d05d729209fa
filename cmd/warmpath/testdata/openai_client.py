"""Drives a router with the OpenAI client: base URL and model are the arguments.

Prints one JSON object: what each check saw. Exits with 1 at the first check
that fails.
"""

import json
import sys

import openai


def check(holds, what):
    if not holds:
        sys.exit(f"openai_client.py: {what}")


def chat(client, model):
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Say something."}], max_tokens=8)
    check(answer.choices[0].message.content and answer.choices[0].finish_reason == "length", f"chat answered {answer}")
    check(answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens == 8, f"usage is {answer.usage}")


def stream(client, model):
    text, usage, chunks = "", None, 0
    for chunk in client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Say something slowly."}], max_tokens=12, stream=True,
        stream_options={"include_usage": True},
    ):
        chunks += 1
        usage = chunk.usage or usage
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    check(text and chunks >= 12, f"{chunks} chunks with the text {text!r}")
    check(usage and usage.completion_tokens == 12, f"usage of the stream is {usage}")


def completions(client, model):
    answer = client.completions.create(model=model, prompt="Once upon a time", max_tokens=6)
    check(answer.choices[0].text and answer.usage.completion_tokens == 6, f"completion answered {answer}")
    parts = [c.choices[0].text for c in client.completions.create(model=model, prompt="Once more", max_tokens=6, stream=True) if c.choices]
    check(len(parts) == 6, f"streamed completion came in {len(parts)} parts")


def errors(client, model):
    messages = [{"role": "user", "content": "x"}]
    try:
        client.chat.completions.create(model="no-such-model", messages=messages)
        check(False, "an unknown model was accepted")
    except openai.NotFoundError as e:
        check(e.code == "model_not_found" and e.param == "model" and e.body["message"], f"unknown model: {e.body}")
    try:
        client.chat.completions.create(model=model, messages=messages, max_tokens=-1)
        check(False, "max_tokens -1 was accepted")
    except openai.BadRequestError as e:
        check(e.body["message"], f"bad request: {e.body}")
    try:
        client.chat.completions.with_raw_response.create(model=model, messages=messages, extra_body={"model": 7})
        check(False, "a model that is a number was accepted")
    except openai.BadRequestError as e:
        check(e.body["message"], f"bad model: {e.body}")


def leave_early(client, model):
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Talk for long."}], max_tokens=20000, stream=True,
    )
    next(iter(answer))
    answer.close()


def conversation(client, model):
    messages = [{"role": "system", "content": "Answer briefly and name your source. " * 40}]
    nodes, cached = [], []
    for question in ("What is it?", "And then?", "And at last?"):
        messages.append({"role": "user", "content": question})
        raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=16)
        answer = raw.parse()
        nodes.append(raw.headers["x-routed-to"])
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    check(len(set(nodes)) == 1, f"turns went to {nodes}")
    check(cached[1] > 0 and cached[2] > cached[1], f"cached tokens are {cached}")
    return {"nodes": nodes, "cached": cached}


def main():
    base, model = sys.argv[1:]
    client = openai.OpenAI(base_url=base + "/v1", api_key="any", max_retries=0, timeout=20)
    names = [m.id for m in client.models.list()]
    check(names == [model], f"models are {names}")
    chat(client, model)
    stream(client, model)
    completions(client, model)
    errors(client, model)
    seen = conversation(client, model)
    leave_early(client, model)
    print(json.dumps({"openai": openai.__version__} | seen))


if __name__ == "__main__":
    main()
