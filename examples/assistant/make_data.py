#!/usr/bin/env python3
"""Writes what the recipes of this folder read: conversations.jsonl, preferences.jsonl and the model's folder (config.json and a
tokenizer with a token for each byte). The same files every time. Usage: python3 make_data.py"""
import json
import pathlib
import random

HERE = pathlib.Path(__file__).parent
CAPITALS = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo", "Peru": "Lima", "Cuba": "Havana", "Kenya": "Nairobi",
            "Egypt": "Cairo", "Norway": "Oslo", "Greece": "Athens", "China": "Beijing", "Qatar": "Doha", "Ghana": "Accra", "Iraq": "Baghdad",
            "Chile": "Santiago", "Poland": "Warsaw", "Nepal": "Kathmandu", "Latvia": "Riga", "Mali": "Bamako", "Iran": "Tehran"}
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
            "{% if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
            "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def user(country):
    return {"role": "user", "content": f"Capital of {country}?"}


def assistant(text):
    return {"role": "assistant", "content": text}


def write_rows(name, rows):
    (HERE / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def byte_characters():
    """The character that byte-level tokenizers write for each byte (GPT-2's table)."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


def write_model():
    folder = HERE / "model"
    folder.mkdir(exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 96, "intermediate_size": 256,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 259,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
              "bos_token_id": 256, "eos_token_id": 258, "tie_word_embeddings": True, "torch_dtype": "float32"}
    special = ["<s>", "<|im_start|>", "<|im_end|>"]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": [{"id": 256 + i, "content": token, **flags} for i, token in enumerate(special)],
                 "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                           "vocab": {c: b for b, c in sorted(byte_characters().items())}, "merges": []}}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")
    settings = {"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def main():
    rng = random.Random(1)
    capitals = list(CAPITALS.values())
    conversations, preferences = [], []
    for country, capital in CAPITALS.items():
        other = rng.choice([c for c in capitals if c != capital])
        for text in (f"{capital}.", f"{capital}. Glad to help!"):
            conversations.append({"messages": [user(country), assistant(text)], "capital": capital})
        for rejected in (f"{capital}.", f"{other}. Glad to help!", f"{other}."):
            preferences.append({"prompt": [user(country)], "chosen": [assistant(f"{capital}. Glad to help!")],
                                "rejected": [assistant(rejected)]})
    write_rows("conversations.jsonl", conversations)
    write_rows("preferences.jsonl", preferences)
    write_model()


if __name__ == "__main__":
    main()
