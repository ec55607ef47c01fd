#!/usr/bin/env python3
"""Compares `braid tokenize` with the Hugging Face `tokenizers` package on generated strings: ids and decoded text.

usage: tools/diff_tokenizer.py BRAID_BINARY [--count 10000] [--seed 1] [MODEL ...]

MODEL: a tokenizer.json or a folder with one; without any, the small ones in tests/data/tokenizer. Exits with 1 when
anything differs. (needs: pip install tokenizers)
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0x61, 0x7A), (0x30, 0x39), (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF),
           (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x3040, 0x30FF),
           (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF), (0x2190, 0x23FF), (0x10400, 0x1044F), (0x20000, 0x2A6DF)]
MARKS = [(0x300, 0x36F), (0x1AB0, 0x1AFF), (0x20D0, 0x20F0), (0x591, 0x5BD), (0x93C, 0x94D), (0x1E000, 0x1E02A)]
SPACES = [" "] * 8 + ["\n"] * 3 + ["\t", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000",
                                  "\u180e", "\u200b", "\ufeff"]
EMOJI = ["🙂", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☺", "👨‍💻"]
CODE = ["def f(x):\n    return x ** 2\n", "if (a != b) { c += d[i]; }", "// comment\r\n", "<div class=\"a\">", "x = {'a': 1, \"b\": [2, 3]}",
        "\t\tfor i in range(10):\n", "SELECT * FROM t WHERE a>=10;", "#include <vector>\n", "https://example.org/a?b=c&d=%20", "a_b__c-d--e"]
WORDS = "the of and It's don't We'LL they've I'm she'd 'tis Hello world word wordy token Straße naïve 1234567 3.14 ½ Ⅻ 'ſ".split()


def code_point(rng):
    while True:
        value = rng.randrange(1, 0x110000)
        if not 0xD800 <= value < 0xE000:
            return chr(value)


def part(rng, special):
    kind = rng.randrange(12)
    if kind < 2:
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))
    if kind < 4:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 6))) if rng.random() < 0.5 else " "
    if kind == 4:
        return rng.choice(EMOJI)
    if kind == 5:
        return rng.choice(CODE)
    if kind < 8:
        return rng.choice(WORDS)
    if kind == 8:
        return "".join(chr(rng.randint(0x20, 0x3400)) for _ in range(rng.randint(1, 8)))
    if kind == 9:
        return "".join(code_point(rng) for _ in range(rng.randint(1, 5)))
    if kind == 10:
        low, high = rng.choice(MARKS)
        return rng.choice("aeiouAEIOU\u1100각か") + "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 3)))
    return rng.choice(special) if special and rng.random() < 0.3 else rng.choice(["▁", "▁▁", "\x00", "é", "e\u0301", "  ", "<0x41>"])


def strings(count, seed, special):
    rng = random.Random(seed)
    return ["".join(part(rng, special) for _ in range(rng.randint(1, 12))) for _ in range(count)]


def run(binary, model, lines, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        result = subprocess.run([binary, "tokenize", str(model), "--input", file.name, "--json", *options], capture_output=True)
    if result.returncode != 0:
        sys.exit(f"{model}: {result.stderr.decode()}")
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


def compare(what, texts, expected, actual):
    if len(expected) != len(actual):
        sys.exit(f"{len(actual)} lines for {len(expected)}")
    different = [i for i in range(len(expected)) if expected[i] != actual[i]]
    for i in different[:5]:
        print(f"  {what} of {texts[i]!r}:\n    reference {expected[i]!r}\n    braid     {actual[i]!r}")
    return len(different)


def check(binary, model, count, seed):
    path = model / "tokenizer.json" if model.is_dir() else model
    reference = Tokenizer.from_file(str(path))
    reference.no_padding()
    reference.no_truncation()
    special = [token.content for token in reference.get_added_tokens_decoder().values()]
    texts = strings(count, seed, special)
    encodings = [reference.encode(text).ids for text in texts]
    bad_ids = compare("ids", texts, encodings, [line["ids"] for line in run(binary, model, [{"text": t} for t in texts])])
    # Decoding: the encodings, and random ids that form broken characters.
    rng = random.Random(seed)
    size = reference.get_vocab_size()
    vocabulary = sorted(reference.get_vocab(with_added_tokens=True).values())
    random_ids = [[rng.choice(vocabulary) for _ in range(rng.randint(0, 20))] for _ in range(count // 4)]
    lists = encodings + random_ids
    decoded = [reference.decode(ids, skip_special_tokens=False) for ids in lists]
    bad_text = compare("text", lists, decoded, [line["text"] for line in run(binary, model, [{"ids": i} for i in lists], "--decode")])
    print(f"{model}: {size} tokens, {count} strings: {bad_ids} with other ids; {len(lists)} id lists: {bad_text} with other text")
    return bad_ids + bad_text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests/data/tokenizer"
    models = options.models or sorted(p for p in folder.glob("*.json"))
    sys.exit(1 if sum([check(options.binary, model, options.count, options.seed) for model in models]) else 0)


if __name__ == "__main__":
    main()
