"""Conversations of many kinds, made up as they go: what e2e_exact.py sends.

A Talk is one conversation. Its kind says which features of the API it uses, so
that all classes of requests occur whose prompts engines make in ways of their
own. Talks of one group begin with the same system prompt. Everything is drawn
from the seed; only the engines' answers come from outside.
"""

import json
from random import Random

from e2e_vllm import WORDS

ODD = (
    "naïve", "Straße", "東京", "привет", "🙂👍🏽", "e\u0301", "\tTab", "x = {\"a\": [1, 2.50]}", "<think>", "3.14159", "I'll", "\r\n", "<|im_end|>", "  ",
)

CITY = {"type": "string", "description": "Städte"}
TOOLS = [
    {"type": "function", "function": function} for function in (
        {
            "name": "weather", "description": "Today's weather in <a city> & around",
            "parameters": {"type": "object", "properties": {"city": CITY, "days": {"type": "integer", "default": 1}}, "required": ["city"]},
        },
        {
            "name": "search", "description": "Full-text search",
            "parameters": {
                "type": "object", "additionalProperties": False,
                "properties": {"query": {"type": "string"}, "limit": {"type": "number", "maximum": 1e3, "minimum": 0.5}},
            },
        },
        {"name": "now"},
    )
]

# kind: what its requests have
KINDS = {
    "plain": set(),
    "tools": {"tools"},
    "parts": {"parts"},
    "no thinking": {"no thinking"},
    "thinking": {"thinking"},
    "tools, parts": {"tools", "parts"},
    "tools, no thinking": {"tools", "no thinking"},
    "all": {"tools", "parts", "no thinking"},
    "salt": {"salt"},
    "continued": {"continued"},
    "text": {"text"},
    "ids": {"ids"},
}

TURNS = 6
LONGEST = 1500  # tokens of a prompt, about: engines of 2,048 must take it and its answer
GROUPS = 4


def sentence(rng, words, odd=0.08):
    return " ".join(rng.choice(ODD) if rng.random() < odd else rng.choice(WORDS) for _ in range(words))


def ids(rng, count):
    """Token ids of ordinary words."""
    return [rng.randrange(1000, 100000) for _ in range(count)]


class Talk:
    """One conversation of a kind. next_body asks for its next request, took
    takes the answer."""

    def __init__(self, number, run, kind, rng):
        self.kind, self.uses, self.rng = kind, KINDS[kind], rng
        self.session = f"{run}-{number}"
        self.path = "/v1/completions" if self.uses & {"text", "ids"} else "/v1/chat/completions"
        self.turns, self.over = 0, False
        group = number % GROUPS
        # The first words are of this run alone: nothing is cached of another's.
        self.system = f"{run} {group}. " + sentence(Random(group), 150 + 60 * group)
        self.messages = [{"role": "system", "content": self.system}]
        self.text = self.system + "\n"
        self.ids = ids(Random(f"{run}/{group}"), 100 + 30 * group)
        self.salt = f"{run}-{number % 3}"

    def content(self, text):
        """Content of a message, as one text or as parts."""
        if "parts" not in self.uses or self.rng.random() < 0.3:
            return text
        cut = self.rng.randrange(len(text))
        return [{"type": "text", "text": t} for t in (text[:cut], text[cut:]) if t]

    def next_body(self, model):
        """The body of the next request, without how it is answered."""
        rng = self.rng
        self.turns += 1
        more = sentence(rng, rng.choice((6, 20, 45, 90)))
        body = {"model": model, "temperature": 0, "max_tokens": rng.choice((1, 4, 8, 16, 33)), "ignore_eos": rng.random() < 0.5}
        if "ids" in self.uses:
            self.ids = self.ids + ids(rng, len(more) // 5)
            return body | {"prompt": self.ids}
        if "text" in self.uses:
            self.text += more
            return body | {"prompt": self.text}
        self.messages.append({"role": "user", "content": self.content(more)})
        body["messages"] = list(self.messages)
        if "tools" in self.uses:
            body["tools"] = TOOLS
        if self.uses & {"thinking", "no thinking"}:
            body["chat_template_kwargs"] = {"enable_thinking": "thinking" in self.uses}
        if "salt" in self.uses:
            body["cache_salt"] = self.salt
        if "continued" in self.uses and self.turns % 2 == 0:
            body["messages"].append({"role": "assistant", "content": sentence(rng, 5, 0)})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body

    def took(self, text, prompt_tokens):
        """Goes on from an answer; sometimes as if it had called tools."""
        rng = self.rng
        self.over = self.turns >= TURNS or prompt_tokens > LONGEST
        self.text += text + "\n"
        if "tools" in self.uses and rng.random() < 0.6:
            self.call_tools(text)
        else:
            self.messages.append({"role": "assistant", "content": self.content(text) if text else ""})

    def call_tools(self, text):
        rng = self.rng
        calls = []
        for n in range(rng.choice((1, 1, 2))):
            arguments = {"city": rng.choice(WORDS + list(ODD)), "days": rng.randrange(9), "f": rng.choice((1.0, 0.5, 1e-7, 1e22)), "n": None}
            written = json.dumps(arguments, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))
            function = {"name": rng.choice(("weather", "search")), "arguments": written}
            calls.append({"id": f"call_{self.turns:04}{n:05}", "type": "function", "function": function})
        self.messages.append({"role": "assistant", "content": rng.choice((None, text)), "tool_calls": calls})
        for call in calls:
            result = json.dumps({"t": 21.5, "text": sentence(rng, 8)}, ensure_ascii=False)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.content(result)})


class Traffic:
    """Talks that take turns. open_talks of them are under way at any time."""

    def __init__(self, run, rng, open_talks):
        self.run, self.rng, self.made = run, rng, 0
        self.idle = [self.make() for _ in range(open_talks)]

    def make(self):
        kinds = list(KINDS)
        kind = kinds[self.made % len(kinds)]
        self.made += 1
        return Talk(self.made, self.run, kind, Random(f"{self.run}/{self.made}"))

    def borrow(self):
        """A talk whose turn it is; give it back when its answer was taken."""
        return self.idle.pop(self.rng.randrange(len(self.idle)))

    def give(self, talk):
        self.idle.append(self.make() if talk.over else talk)
