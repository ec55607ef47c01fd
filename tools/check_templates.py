#!/usr/bin/env python3
"""Renders published chat templates with Braid's interpreter and with jinja2, on the same conversations, and compares the texts.

usage: tools/check_templates.py build/jinja_lines FOLDER [--table] [--show N]

FOLDER holds *.jinja files and tokenizer_config.json-like *.json files with a "chat_template"; nothing is fetched. A template agrees
when every conversation gives the same bytes or is refused by both. Exits with 1 when one does not. (needs: pip install jinja2)
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys

import jinja_reference

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather of a city, in °C", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "Name of the \"city\""},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"type": ["string", "null"]}, "exact": {"type": "boolean"},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]}},
        "required": ["city"]}, "return": {"type": "string"}}}
ADD = {"type": "function", "function": {"name": "add", "description": "", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}
PLAIN_TOOL = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}

USER = {"role": "user", "content": "What is 2 + 2?"}
ANSWER = {"role": "assistant", "content": "It is 4."}
SYSTEM = {"role": "system", "content": "You are helpful.\nAnswer briefly. "}
CALL = {"id": "call_0001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": True}}}
CALL_2 = {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}
TEXT_CALL = {"id": "123456789", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1, \"b\": 2}"}}


def tool_turns(call, result, with_id=True):
    answer = {"role": "tool", "name": call["function"]["name"], "content": result}
    if with_id:
        answer["tool_call_id"] = call["id"]
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, answer]


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


IMAGE = {"type": "image", "image": "x.png"}
THINKING = {"role": "assistant", "content": "Four.", "reasoning_content": "2 + 2\nis 4", "thinking": "2 + 2\nis 4", "reasoning": "2 + 2\nis 4"}
INLINE_THINKING = {"role": "assistant", "content": "<think>\nlet me see\n</think>\n\nFour."}

# name: (messages, further variables)
CONVERSATIONS = {
    "user": ([USER], {}),
    "prompt": ([USER], {"add_generation_prompt": True}),
    "system": ([SYSTEM, USER], {"add_generation_prompt": True}),
    "turns": ([USER, ANSWER, {"role": "user", "content": "And 3 + 3?"}], {"add_generation_prompt": True}),
    "trained": ([SYSTEM, USER, ANSWER, {"role": "user", "content": "And 3 + 3?"}, {"role": "assistant", "content": "6"}], {}),
    "tools": ([USER], {"tools": [WEATHER, ADD], "add_generation_prompt": True}),
    "tools and system": ([SYSTEM, USER], {"tools": [PLAIN_TOOL], "add_generation_prompt": True}),
    "call": ([SYSTEM, USER, *tool_turns(CALL, "{\"temperature\": 21}")], {"tools": [WEATHER], "add_generation_prompt": True}),
    "two calls": ([USER, {"role": "assistant", "content": "Both.", "tool_calls": [CALL, CALL_2]},
                   {"role": "tool", "name": "get_weather", "tool_call_id": "call_0001", "content": "21 °C"},
                   {"role": "tool", "name": "add", "tool_call_id": "abcdefghi", "content": "3.5"}, ANSWER], {"tools": [WEATHER, ADD]}),
    "call with text": ([USER, *tool_turns(TEXT_CALL, "3"), {"role": "assistant", "content": "3."}], {"tools": [ADD]}),
    "call without id": ([USER, *tool_turns({"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}, "3", False)], {"tools": [ADD]}),
    "call of none": ([USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}], {"tools": [WEATHER]}),
    "ipython": ([USER, ANSWER, {"role": "ipython", "content": {"output": "4"}}], {"add_generation_prompt": True}),
    "call, thinking": ([USER, {"role": "assistant", "content": "", "reasoning_content": "I need a tool", "thinking": "I need a tool", "tool_calls": [CALL]},
                        tool_turns(CALL, "sunny")[1], THINKING, USER], {"tools": [WEATHER], "add_generation_prompt": True}),
    "documents": ([USER], {"documents": [{"title": "Numbers", "text": "2 + 2 = 4"}, {"title": "Ünï", "text": "x"}], "add_generation_prompt": True}),
    "reasoning": ([USER, THINKING], {}),
    "reasoning, then more": ([USER, THINKING, {"role": "user", "content": "Sure?"}], {"add_generation_prompt": True}),
    "reasoning inline": ([USER, INLINE_THINKING, {"role": "user", "content": "Sure?"}, INLINE_THINKING], {}),
    "no thinking": ([USER], {"add_generation_prompt": True, "enable_thinking": False}),
    "thinking": ([SYSTEM, USER], {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
    "no content": ([{"role": "user"}], {"add_generation_prompt": True}),
    "no role": ([{"content": "hi"}], {"add_generation_prompt": True}),
    "none": ([{"role": "user", "content": None}, {"role": "assistant", "content": None}], {}),
    "unicode": ([{"role": "user", "content": "Grüße, 世界 🙂\u2028 \"q\" 'a' <b>&amp;</b> \\n"}, {"role": "assistant", "content": "É\t\x85ß"}], {}),
    "empty": ([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}], {"add_generation_prompt": True}),
    "blanks": ([{"role": "system", "content": "  s \n"}, {"role": "user", "content": "\n\n u "}, {"role": "assistant", "content": " a\n\n"}], {}),
    "parts": ([{"role": "user", "content": parts("one", " two")}, {"role": "assistant", "content": parts("three")}], {}),
    "parts and system": ([{"role": "system", "content": parts("be kind")}, {"role": "user", "content": parts("hi")}], {"add_generation_prompt": True}),
    "image": ([{"role": "user", "content": [IMAGE, *parts("what is it?")]}], {"add_generation_prompt": True}),
    "assistant first": ([ANSWER, USER], {"add_generation_prompt": True}),
    "two users": ([USER, USER], {"add_generation_prompt": True}),
    "two systems": ([SYSTEM, SYSTEM, USER], {}),
    "system last": ([USER, SYSTEM], {"add_generation_prompt": True}),
    "developer": ([{"role": "developer", "content": "Be terse."}, USER], {"add_generation_prompt": True}),
    "other role": ([USER, {"role": "critic", "content": "no"}], {}),
    "tool alone": ([{"role": "tool", "content": "x"}], {}),
    "system alone": ([SYSTEM], {"add_generation_prompt": True}),
    "assistant alone": ([ANSWER], {}),
    "no messages": ([], {"add_generation_prompt": True}),
    "extra variables": ([USER], {"add_generation_prompt": True, "date_string": "1 Jan 2025", "custom_system_prompt": "x", "tools_in_user_message": False,
                                 "builtin_tools": ["brave_search", "code_interpreter"], "xml_tools": [], "python_tools": []}),
    "number": ([{"role": "user", "content": 7}, {"role": "assistant", "content": True}], {}),
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def variables_of(conversation):
    messages, further = conversation
    return {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False, **TOKENS, **further}


def templates_of(folder):
    """[(name, text)] of every template in the folder, in the order of names."""
    out = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".jinja", ".j2"):
            out.append((name, path.read_text(encoding="utf-8")))
        elif path.suffix == ".json":
            value = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
            named = value if isinstance(value, list) else [{"name": "", "template": value}] if value else []
            out += [(name + (":" + one["name"] if one["name"] else ""), one["template"]) for one in named]
    return out


def braid_results(program, lines):
    run = subprocess.run([program], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--table", action="store_true", help="print name, SHA-256 and outcome of every template")
    parser.add_argument("--show", type=int, default=3, help="differences to print")
    options = parser.parse_args()
    templates = templates_of(options.folder)
    jobs = [(name, text, title) for name, text in templates for title in CONVERSATIONS]
    lines = [{"template": text, "variables": variables_of(CONVERSATIONS[title]), "now": jinja_reference.NOW} for _, text, title in jobs]
    bad, shown, rendered, refused = {}, 0, 0, 0
    for (name, text, title), found in zip(jobs, braid_results(options.program, lines)):
        wanted, error = jinja_reference.render(text, variables_of(CONVERSATIONS[title]))
        rendered, refused = rendered + (error is None), refused + (error is not None)
        if wanted == found.get("text"):
            continue
        bad.setdefault(name, []).append(title)
        if shown < options.show:
            shown += 1
            print(f"--- {name}, conversation '{title}'\n  jinja2: {error or repr(wanted)}\n  braid:  {found.get('error') or repr(found['text'])}")
    if options.table:
        for name, text in templates:
            print(f"| `{name}` | `{hashlib.sha256(text.encode()).hexdigest()[:16]}` | {'differs: ' + ', '.join(bad[name]) if name in bad else 'same'} |")
    print(f"{len(templates) - len(bad)} of {len(templates)} templates agree on {len(CONVERSATIONS)} conversations each "
          f"({rendered} texts, {refused} refusals, {sum(map(len, bad.values()))} differences)")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
