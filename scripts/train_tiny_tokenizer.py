"""Trains the tokenizer of the unit tests, and has the reference implementation
encode texts with it and with variants of it.

    python3 -m venv .cache/venv && .cache/venv/bin/pip install tokenizers==0.23.3
    .cache/venv/bin/python scripts/train_tiny_tokenizer.py

Writes, under dataplane/tokenize/testdata, tiny.json, a byte-level tokenizer
shaped like that of Qwen with 2,000 merges of our own text, and
tiny_goldens.json: texts, and for each variant the parts of tiny.json that it
replaces and the ids of each text.
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dataplane" / "tokenize"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}"
HEAD, TAIL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{HEAD}*{TAIL}+|[^\r\n\p{{L}}\p{{N}}]?{HEAD}+{TAIL}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{END}"
)
O200K = TEKKEN.replace("+|[", f"+{CONTRACTIONS}?|[", 1).replace(r"*|\p{N}", rf"*{CONTRACTIONS}?|\p{{N}}{{1,3}}", 1)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]

# What one pattern or another treats in a way of its own.
FRAGMENTS = """'s 'T 'rE 'll 'ſ ’s ' ſ K a B ab Cd EFG hijK don't I'LL é e\u0301 \u0301 \u0323\u0301 \u0338 \u0345 Ǆ ǅ ǆ ʰ ª 中 文字 の カ
・ ゠ \u3099 ゛ \u3097 \u4dbf \u9fa6 龥 한 \u1112\u1161\u11ab \u1100 \u1161 \u11a8 1 12 1234 ٣ Ⅷ ² ½ 𝟎 ! ?! ... / // - _ \\ " < > + = € $ 😀 👨‍👩‍👧
\u200b \u200d \ufeff \x00 \x01 \x7f \u0378 \ue000 \U0010ffff \u1c89 \ua7cb \U00010d40 \U000323af \u0958 \u0915\u093c \u09c7\u09be
\u0897 \u07fd \U00011935\U00011930 \u0f73 \u0f71\u0f72 \u0344 the server Server tokens über naïve שלום مرحبا ไทย <|im_start|> <|im_end|>
<|im_end im_end|> <|im_start|>user assistant <think> <|a <|a|> |> [x] x] word words sword Wörd \U00011de0""".split()
SPACES = [" ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\n/", "\u00a0", "\u0085", "\u2028", "\u3000"]


def texts():
    """Fragments in random order, and some plain text."""
    rand = random.Random(1)
    out = ["", " ", "\n", "a", "Hello, world!", "It's 12345 o'clock.\n\n  Don't  panic\n"]
    for _ in range(150):
        parts = [rand.choice(FRAGMENTS if rand.random() < 0.7 else SPACES) for _ in range(rand.randint(1, 14))]
        out.append("".join(parts))
    out += ["a" * 70, " " * 80, "\n" * 65, "ab" * 40, "中文" * 30, "!" * 66, "\u0301" * 40, "the " * 30]
    out += [ch + "a" + ch for ch in map(chr, range(0x20, 0x180, 7))]
    out += (PACKAGE / "testdata" / "chinese.txt").read_text().splitlines()[:2]
    return out


def split(*patterns):
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split(CL100K.replace("{1,3}", ""))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=2256, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    files = [ROOT / "README.md", *sorted(PACKAGE.glob("s*.go")), PACKAGE / "testdata" / "chinese.txt"]
    tokenizer.train_from_iterator([f.read_text() for f in files], trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "</think>")])
    return json.loads(tokenizer.to_str())


def added(base, *tokens):
    """The added tokens of the base and some more; those in the vocabulary keep
    their ids."""
    out, vocab = list(base["added_tokens"]), base["model"]["vocab"]
    free = len(vocab) + len(out)
    for content, flags in tokens:
        token = {"id": vocab.get(content, free), "content": content}
        free += content not in vocab
        token |= dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
        out.append(token | dict.fromkeys(flags, True))
    return out


def variants(base):
    """Parts to replace, by name of the variant; "ignore_merges" is the model's."""
    def pre(p):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = p
        return json.loads(tokenizer.to_str())["pre_tokenizer"]

    bos = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    identity = base["added_tokens"][0]["id"]
    template = {
        "type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [identity], "tokens": ["<|endoftext|>"]}}}
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    return {
        "qwen": {},
        "llama3": {"pre_tokenizer": pre(split(CL100K)), "normalizer": None, "ignore_merges": True, "post_processor": template},
        "o200k": {"pre_tokenizer": pre(split(O200K)), "normalizer": None, "ignore_merges": True},
        "tekken": {"pre_tokenizer": pre(split(TEKKEN)), "normalizer": None},
        "deepseek": {"pre_tokenizer": pre(split(*DEEPSEEK)), "normalizer": {"type": "Sequence", "normalizers": []}},
        "gpt2": {"pre_tokenizer": pre(pre_tokenizers.ByteLevel(False)), "normalizer": None},
        "gpt2 with prefix": {"pre_tokenizer": pre(pre_tokenizers.ByteLevel(True)), "normalizer": None},
        "digits": {"pre_tokenizer": pre(digits), "normalizer": None},
        "lstrip": {"added_tokens": added(base, ("<|a|>", ["lstrip"]), ("word", ["lstrip"]))},
        "rstrip": {"added_tokens": added(base, ("<|a|>", ["rstrip"]), ("word", ["rstrip"]))},
        "single word": {"added_tokens": added(base, ("word", ["single_word"]), ("[x]", ["single_word"]))},
        "normalized": {"added_tokens": added(base, ("é", ["normalized"]), ("e\u0301 ", ["normalized"]), ("x]", ["normalized"]))},
        "nested": {"added_tokens": added(base, ("<|", []), ("|>", []), ("<|a|>", []), ("  ", []), ("\n\n", []))},
        "two sets": {
            "normalizer": None,
            "added_tokens": added(base, ("<|a|>", ["normalized"]), ("|>", []), ("im_", ["normalized"]), ("word", ["normalized"]))},
    }


def main():
    base = train()
    (PACKAGE / "testdata" / "tiny.json").write_text(json.dumps(base, ensure_ascii=False, indent=0))
    all_texts, lines = texts(), []
    for name, parts in variants(base).items():
        whole = base | {k: v for k, v in parts.items() if k != "ignore_merges"}
        whole["model"] = base["model"] | {"ignore_merges": parts.get("ignore_merges", False)}
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in all_texts]
        ids = ",\n".join(json.dumps(i, separators=(",", ":")) for i in ids)
        lines.append(f'{{"name": {json.dumps(name)}, "parts": {json.dumps(parts)}, "ids": [\n{ids}]}}')
    goldens = '{"texts": ' + json.dumps(all_texts, indent=0) + ',\n"variants": [' + ",\n".join(lines) + "]}\n"
    (PACKAGE / "testdata" / "tiny_goldens.json").write_text(goldens)


if __name__ == "__main__":
    main()
