#!/usr/bin/env python3
"""Renders chat data to token ids with the model's own chat template, for templates that Braid does not know.

Each line of the input, {"messages": [{"role", "content"}, ...], ...}, becomes {"ids": [...], ...}: `messages` is replaced by
`ids`, every other field is kept; `tools` and `documents` of a line are given to the template. A line whose last message
is the assistant's is rendered as it is, any other ends with the beginning of the assistant's turn (--prompt overrides).
A tokenizer that puts BOS in front of every text gets exactly one.

usage: tools/render_prompts.py MODEL --input FILE.jsonl --output IDS.jsonl      (needs: pip install transformers)
"""

import argparse
import json
import sys

REPLACED = ("messages", "tools", "documents")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder with the tokenizer and its chat template")
    parser.add_argument("--input", required=True, help="JSON lines with messages; - is standard input")
    parser.add_argument("--output", required=True, help="JSON lines with ids; - is standard output")
    parser.add_argument(
        "--prompt",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether to add the beginning of the assistant's turn",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="a variable of the template, such as enable_thinking=false; repeatable",
    )
    return parser.parse_args()


def parse_options(texts):
    """{"enable_thinking": False} from ["enable_thinking=false"]."""
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--option {text}: write NAME=JSON")
        options[name] = json.loads(value)
    return options


def front_bos(tokenizer):
    """The BOS id when the tokenizer puts it in front of every text, otherwise None."""
    ids = tokenizer("")["input_ids"]
    return ids[0] if ids and ids[0] == tokenizer.bos_token_id else None


def wants_prompt(mode, messages):
    return mode == "always" or (mode == "auto" and messages[-1]["role"] != "assistant")


def render(tokenizer, row, mode, options):
    """The row with `ids` in place of `messages`."""
    messages = row["messages"]
    ids = tokenizer.apply_chat_template(
        messages,
        tools=row.get("tools"),
        documents=row.get("documents"),
        add_generation_prompt=wants_prompt(mode, messages),
        tokenize=True,
        return_dict=False,
        **options,
    )
    bos = front_bos(tokenizer)
    if bos is not None and ids[:1] != [bos]:
        ids = [bos, *ids]
    return {"ids": ids, **{key: value for key, value in row.items() if key not in REPLACED}}


def render_lines(tokenizer, lines, mode, options):
    """Yields the output lines; a bad input line is a ValueError that names its number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "ids" in row:
                raise ValueError("the line already has ids")
            yield json.dumps(render(tokenizer, row, mode, options), ensure_ascii=False) + "\n"
        except Exception as error:  # the template's own errors have no common class
            raise ValueError(f"line {number}: {type(error).__name__}: {error}") from error


def main():
    arguments = parse_arguments()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    options = parse_options(arguments.option)
    source = sys.stdin if arguments.input == "-" else open(arguments.input, encoding="utf-8")
    with source:
        lines = list(render_lines(tokenizer, source, arguments.prompt, options))
    target = sys.stdout if arguments.output == "-" else open(arguments.output, "w", encoding="utf-8")
    target.writelines(lines)
    target.flush()


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as problem:
        sys.exit(f"render_prompts: {problem}")
