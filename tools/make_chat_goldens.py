#!/usr/bin/env python3
"""Writes tests/data/chat: a small tokenizer, and conversations as `transformers` renders them with templates of our own.

goldens.json is a list of {template, cases}. A case is {options, text, ids, mask}: options are messages, tools, documents, arguments,
add_generation_prompt and continue_final_message; `text` is null where the template refuses the conversation; `mask` marks the
assistant's tokens where the template has {% generation %}.

usage: tools/make_chat_goldens.py [FOLDER]        (needs: pip install transformers)
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

MARKS = (
    "<|im_start|> <|im_end|> <|start_header_id|> <|end_header_id|> <|eot_id|> <start_of_turn> <end_of_turn>"
).split()

PROGRAMS = [
    (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
        " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    (
        "{%- if not add_generation_prompt is defined -%}\n  {%- set add_generation_prompt = false -%}\n{%- endif -%}\n"
        "{%- for turn in messages -%}\n    {# a turn #}\n"
        '    {{- "<|im_start|>" ~ turn.role ~ "\\n" ~ turn.content | trim ~ "<|im_end|>\\n" -}}\n{%- endfor -%}\n'
        '{%- if (add_generation_prompt) -%}\n    {{- "<|im_start|>assistant\\n" -}}\n{%- endif -%}\n'
    ),
    (
        "{{ bos_token }}{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou count sheep.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' "
        "+ message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    (
        "{% if messages[0]['role'] == 'system' %}\n{% set turns = messages[1:] %}\n"
        "{% set system_text = messages[0]['content'] %}\n{% else %}\n{% set turns = messages %}\n"
        "{% set system_text = false %}\n{% endif %}\n{% for turn in turns %}\n"
        "{% if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}\n{{ raise_exception('user and assistant take turns') }}"
        "{% endif %}\n{% if loop.index0 == 0 and system_text != false %}\n"
        "{% set text = '<<SYS>>\\n' + system_text + '\\n<</SYS>>\\n\\n' + turn['content'] %}\n{% else %}\n"
        "{% set text = turn['content'] %}\n{% endif %}\n{% if turn['role'] == 'user' %}\n"
        "{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}{% elif turn['role'] == 'assistant' %}\n"
        "{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}\n{% endfor %}"
    ),
    (
        "{% set turns = messages %}{% for turn in turns %}{% set text = '<|start_header_id|>' + turn['role'] + "
        "'<|end_header_id|>\\n\\n'+ turn['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set text = bos_token + text %}{% endif %}{{ text }}{% endfor %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    ),
    (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ '\\n\\n' + m.content }}"
        "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>"
        "{{ '\\n\\n' }}{% endif %}"
    ),
    (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role here') }}{% endif %}"
        "{% for turn in messages %}{% if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('user and assistant take turns') }}{% endif %}{% if (turn['role'] == 'assistant') %}"
        "{% set who = 'model' %}{% else %}{% set who = turn['role'] %}{% endif %}{{ '<start_of_turn>' + who + '\\n' + "
        "turn['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{'<start_of_turn>model\\n'}}{% endif %}"
    ),
    (
        "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('turns') }}{% endif %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) "
        "+ '\\n' + m.content + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<start_of_turn>model\\n' }}{% endif %}"
    ),
    (
        "{{ bos_token }}{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    ),
]

CHATML_TURN = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
PROGRAMS += [
    # tools
    "{% if tools %}{{ '<|im_start|>system\\n' + tools | tojson + '<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}" + CHATML_TURN + "{% endfor %}" + PROMPT,
    # reasoning removed from earlier turns
    "{% for m in messages %}{% set c = m.content.split('</think>')[-1] %}"
    "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}" + PROMPT,
    # no newline behind a turn
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}" + PROMPT,
    # another prompt
    "{% for m in messages %}" + CHATML_TURN + "{% endfor %}{{ '<|im_start|>assistant\\n<think>\\n' }}",
    # a date
    "{{ bos_token }}{{ '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + date_string + '<|eot_id|>' }}"
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + "
    "'<|eot_id|>' }}{% endfor %}",
    # [INST] without <<SYS>>
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
    # no other name for the assistant
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + m.role + '\\n' + m.content | trim + "
    "'<end_of_turn>\\n' }}{% endfor %}",
    "{% for m in messages %}{{ m.role + ' - ' + m.content + '\\n' }}{% endfor %}",
]

# tools, calls, documents, reasoning, arguments, a date, and the assistant's text marked
PROGRAMS += ["""{%- macro call(c) -%}
  {{- '{"name": "' ~ c.function.name ~ '", "arguments": ' ~ (c.function.arguments | tojson) ~ '}' -}}
{%- endmacro -%}
{{- bos_token }}
{%- if tools %}
  {{- '<|im_start|>system\\n' }}
  {%- for tool in tools %}
    {{- tool | tojson(indent=2) + '\\n' }}
  {%- endfor %}
  {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for d in documents or [] %}{{ '[' ~ loop.index ~ '/' ~ loop.length ~ '] ' ~ d.title ~ '\\n' }}{% endfor %}
{%- for m in messages %}
  {{- '<|im_start|>' + m.role + '\\n' }}
  {%- if m.role == 'assistant' %}
    {%- generation %}
    {%- if m.reasoning_content is defined and loop.last %}{{ '(' + m.reasoning_content + ')' }}{% endif %}
    {%- if m.content is string %}{{ m.content }}{% endif %}
    {%- for c in m.tool_calls or [] %}{{ call(c) }}{% endfor %}
    {{- '<|im_end|>' }}
    {%- endgeneration %}
  {%- elif m.content is string %}
    {{- m.content + '<|im_end|>' }}
  {%- else %}
    {{- m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('|') + '<|im_end|>' }}
  {%- endif %}
  {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n' }}
  {%- if enable_thinking is defined and not enable_thinking %}{{ '()' }}{% endif %}
{%- endif %}"""]

CONVERSATIONS = [
    [("user", "How many sheep?")],
    [("system", "Be  brief.\n"), ("user", " What is 6 * 7?\t")],
    [("user", "Hi"), ("assistant", " Hello! \n"), ("user", "naïve 東京 🙂\n\nbye ")],
    [("system", ""), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")],
    [("assistant", "I begin"), ("user", "no")],
    [("user", "one"), ("user", "two")],
    [("user", "\u00a0\u2003spaced\x1f"), ("assistant", "")],
]
# Ended inside of the assistant's message: blanks at its end, a text that an earlier message holds too, nothing yet.
OPEN = [
    [("user", "6 * 7?"), ("assistant", "<think>\nSix times")],
    [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "The answer is ")],
    [("user", "Repeat: So"), ("assistant", "So")],
    [("user", "naïve?"), ("assistant", " 東京 🙂\n\n")],
    [("user", "a"), ("assistant", "")],
]
TOOL = {"type": "function", "function": {"name": "add", "description": "a + b", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}
CALL = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"b": 1.0, "a": [True, None]}}}]}
RICH = [
    {"messages": [{"role": "user", "content": "1+1"}, CALL, {"role": "tool", "content": "2"}, {"role": "assistant", "content": "2"}], "tools": [TOOL]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "image"}, {"type": "text", "text": "b"}]}],
     "documents": [{"title": "T", "text": "x"}, {"title": "U", "text": "y"}], "add_generation_prompt": True, "arguments": {"enable_thinking": False}},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "hm"}, {"role": "user", "content": "c"},
                  {"role": "assistant", "content": "d", "reasoning": "so", "name": None}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "The answer is "}], "continue_final_message": True},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "tell "}]}], "continue_final_message": True},
]


def build_tokenizer():
    """Bytes without merges, <s> in front of every text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", *MARKS])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def render(tokenizer, program, options):
    given = dict(options)
    messages, arguments = given.pop("messages"), given.pop("arguments", {})
    given.update(chat_template=program, **arguments)
    case = {"options": options}
    try:
        case["text"] = tokenizer.apply_chat_template(messages, tokenize=False, **given)
    except Exception:  # jinja2's own classes; the template's raise_exception ends here
        return {**case, "text": None}
    marked = "{%- generation" in program and not options.get("continue_final_message")
    out = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=marked, **given)
    case["ids"] = out["input_ids"]
    if marked:
        case["mask"] = out["assistant_masks"]
    return case


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/chat")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}\n')
    asked = [{"messages": [{"role": role, "content": content} for role, content in turns], "add_generation_prompt": prompt}
             for turns in CONVERSATIONS for prompt in (False, True)]
    asked += [{"messages": [{"role": role, "content": content} for role, content in turns], "continue_final_message": True} for turns in OPEN]
    goldens = [{"template": program, "cases": [render(tokenizer, program, options) for options in asked + (RICH if "tools" in program else [])]}
               for program in PROGRAMS]
    lines = ",\n".join(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) for golden in goldens)
    (folder / "goldens.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
