"""Makes a small tokenizer of the SentencePiece family, and what the Hugging Face
tokenizers library answers for it in many settings:

    dataplane/tokenize/testdata/spm.json         the tokenizer, shaped like Llama 2's
    dataplane/tokenize/testdata/spm_goldens.json  settings, texts and ids

    python3 -m venv .cache/venv && .cache/venv/bin/pip install tokenizers==0.23.3
    .cache/venv/bin/python scripts/train_tiny_sentencepiece.py

A setting has the parts of the tokenizer's file that are different, of the model
the fields, and with "without" entries to leave out. The text to train on is this
repository's; trained anew on other text, both files change.
"""

import json
import pathlib
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent.parent / "dataplane" / "tokenize"
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = ["<0x%02X>" % b for b in range(256)]
ENTRIES = 1000  # trained ones

REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def added(id, content, **flags):
    token = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False}
    return {**token, "normalized": False, "special": content in SPECIAL, **flags}


def train():
    """The trained entries and merges: words of English, Go and other scripts,
    and runs of spaces and newlines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=ENTRIES, show_progress=False, limit_alphabet=400)
    texts = [p.read_text() for p in [FOLDER / "hf/testdata/scripts.txt", FOLDER / "testdata/chinese.txt"]]
    sources = [p for p in sorted(FOLDER.glob("spm*.go")) if "_test" not in p.name]
    texts += [p.read_text().expandtabs(4) for p in sources]
    tokenizer.train_from_iterator([t.replace("\n", " ") for t in texts], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    entries = sorted(model["vocab"], key=model["vocab"].get)
    merges = [list(m) for m in model["merges"]]
    for run, longest in [("\n", 4), ("▁", 8)]:
        for n in range(2, longest + 1):
            merges += [[run * i, run * (n - i)] for i in range(n - 1, 0, -1)]
            entries.append(run * n)
        entries.append(run)
    # A merge across a space and one across a newline, so that not all are cuts.
    merges += [["&", "▁"], ["&▁", "&"], ["]", "\n"]]
    entries += ["&", "&▁", "&▁&", "]", "]\n"]
    # Entries that no merge makes, one of them a whole word, one a piece.
    entries += ["▁unmergeable", "unmergeable▁piece", "▁longer▁than▁fifteen", "of€the"]
    return list(dict.fromkeys(entries)), merges


def base():
    entries, merges = train()
    vocab = {entry: i for i, entry in enumerate(SPECIAL + BYTES + entries)}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(i, s) for i, s in enumerate(SPECIAL)],
        "normalizer": {"type": "Sequence", "normalizers": [PREPEND, REPLACE]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders + [{"type": "Fuse"}]},
        "model": {**model, "vocab": vocab, "merges": merges},
    }


def metaspace(**settings):
    return {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", **settings}}


def settings(vocab):
    """Name and patch of each setting."""
    llama, gemma = {}, {"normalizer": REPLACE, "pre_tokenizer": SPLIT}
    runs = ["\n", "\n\n", "\n\n\n", "\n\n\n\n", "▁▁", "▁▁▁▁"]
    special = [added(i, s) for i, s in enumerate(SPECIAL)]
    no_bytes = {"byte_fallback": False}
    few_bytes = {"without": BYTES[0xE5:0xF1]}
    far = len(vocab)
    flags = [added(far, "<L>", lstrip=True), added(far + 1, "<R>", rstrip=True), added(far + 2, "word", single_word=True)]
    normal = [added(far, "of the", normalized=True), added(far + 1, "<n> ", normalized=True), added(far + 2, "\n", normalized=True)]
    normal[2]["id"] = vocab["\n"]
    always = metaspace(prepend_scheme="always", split=True)
    return {
        "llama": llama,
        "gemma": {**gemma, "added_tokens": special + [added(vocab[r], r) for r in runs]},
        "replace only": {"normalizer": REPLACE},
        "always": always,
        "always, not split": metaspace(prepend_scheme="always", split=False),
        "first": metaspace(prepend_scheme="first", split=True),
        "first, not split": metaspace(prepend_scheme="first", split=False),
        "never": metaspace(prepend_scheme="never", split=True),
        "never, not split": metaspace(prepend_scheme="never", split=False),
        "older, with prefix": metaspace(add_prefix_space=True, str_rep="▁"),
        "older, without prefix": metaspace(add_prefix_space=False, prepend_scheme="never"),
        "prepend and split": {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}},
        "unknown": {**gemma, "model": no_bytes},
        "unknown, not fused": {**gemma, "model": {**no_bytes, "fuse_unk": False}},
        "unknown, split": {**always, "model": no_bytes},
        "unknown, prepended": {"model": no_bytes},
        "some bytes": {**gemma, "model": few_bytes},
        "some bytes, not fused": {**gemma, "model": {**few_bytes, "fuse_unk": False}},
        "whole pieces": {**gemma, "model": {"ignore_merges": True}},
        "whole pieces, prepended": {"model": {"ignore_merges": True}},
        "whole words": {**always, "model": {"ignore_merges": True}},
        "whole words, no prefix": {**metaspace(prepend_scheme="never", split=True), "model": {"ignore_merges": True}},
        "flags": {**gemma, "added_tokens": special + flags},
        "flags, prepended": {"added_tokens": special + flags},
        "flags, first": {**metaspace(prepend_scheme="first", split=True), "added_tokens": special + flags},
        "normalized": {**gemma, "added_tokens": special + normal},
        "normalized, prepended": {"added_tokens": special + normal},
        "normalized, always": {**always, "added_tokens": special + normal},
        "normalized, first": {**metaspace(prepend_scheme="first", split=False), "added_tokens": special + normal},
    }


PIECES = [
    *["the", "of the", "token", "return", "word", "words", "unmergeable", "unmergeable piece", "longer than fifteen", "of€the"],
    *[" ", " ", " ", "  ", "    ", " " * 11, "\t", "\n", "\n\n", "\n\n\n\n\n", "\r\n", "\u00a0", "\u3000"],
    *["▁", "▁▁", "▁the", "& &", "&", "&  &", "]\n", "\nthe", "func (s *", "):\n", "s)", "...", "<", ">", "0", "1234"],
    *["你好", "世界，", "、", "é", "e\u0301", "λόγος", "при", "😀", "👍🏽", "☃☃", "\x00", "\ufffd", "\U0010ffff", "￿", "ﬁ"],
    *["<s>", "</s>", "<unk>", "<0x41>", "<0xE2>", "<L>", " <L>", "<R>", "<R> ", "<n> ", "<n>", " of the ", "of▁the"],
]


def texts():
    chance = random.Random(7)
    chosen = ["", " ", "▁", "a", " a", "  a", "\n", "<s>", "<s>the", "<s> the", " <s>", "the</s>of", "unmergeable", " unmergeable"]
    chosen += ["unmergeable piece", " longer than fifteen", "☃é☃", "☃ ☃", "é中☃", "☃中é the", "the token " * 40, "x" * 200, " " * 70]
    for _ in range(60):
        chosen.append("".join(chance.choice(PIECES) for _ in range(chance.randrange(2, 14))))
    return chosen


def patched(tokenizer, patch):
    model = {**tokenizer["model"], **patch.get("model", {})}
    without = model.pop("without", [])
    model["vocab"] = {entry: id for entry, id in model["vocab"].items() if entry not in without}
    return {**tokenizer, **patch, "model": model}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main():
    tokenizer, chosen, rows = base(), texts(), []
    for name, patch in settings(tokenizer["model"]["vocab"]).items():
        oracle = Tokenizer.from_str(json.dumps(patched(tokenizer, patch)))
        ids = [oracle.encode(t, add_special_tokens=False).ids for t in chosen]
        rows.append({"name": name, "patch": patch, "ids": ids})
    out = FOLDER / "testdata"
    (out / "spm.json").write_text(compact(tokenizer) + "\n")
    variants = ",\n".join(map(compact, rows))
    (out / "spm_goldens.json").write_text('{"texts":%s,\n"variants":[\n%s\n]}\n' % (compact(chosen), variants))


main()
