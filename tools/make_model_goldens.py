#!/usr/bin/env python3
"""Writes tests/data/models/: tiny random models of every family with what transformers computes for them.

Each folder is a Hugging Face checkpoint (bf16 weights) plus golden.json: f32 logits of two prompts, and a greedy
continuation of 32 tokens. FAMILY-score holds a sequence classifier with one label, with its output after every token;
llama-lora holds a PEFT adapter of the llama folder. Needs torch, transformers and peft. Usage: make_model_goldens.py [OUT]
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

VOCAB = 199
PROMPTS = [[5, 17, 101, 42, 7, 198, 3, 64, 90, 12, 55], [1, 150, 33]]
COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)

GEMMA3 = dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
              full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=8.0))
LONG = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.5, 2.0, 3.0],
            long_factor=[1.0, 4.0, 8.0, 16.0])
# Which seed a family's weights come from is its place here.
SEEDS = ["llama", "llama3", "qwen2", "qwen3", "mistral", "gemma", "gpt2", "gemma2", "gemma3", "phi3", "phi3-long",
         "qwen2-mixed"]


def configs():
    t = transformers
    yield "llama", t.LlamaConfig(**{**COMMON, "num_key_value_heads": 4})
    yield "llama3", t.LlamaConfig(**COMMON, rope_parameters=LLAMA3, tie_word_embeddings=True)
    yield "qwen2", t.Qwen2Config(**COMMON)
    yield "qwen3", t.Qwen3Config(**COMMON, head_dim=16, tie_word_embeddings=True)
    yield "mistral", t.MistralConfig(**COMMON, sliding_window=6)
    yield "gemma", t.GemmaConfig(**{**COMMON, "num_key_value_heads": 1}, head_dim=16)
    mixed = ["sliding_attention", "full_attention"]
    yield "gemma2", t.Gemma2Config(**COMMON, head_dim=16, query_pre_attn_scalar=24, sliding_window=6,
                                   attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
    yield "gemma3", t.Gemma3TextConfig(**COMMON, head_dim=16, query_pre_attn_scalar=24, sliding_window=6,
                                       layer_types=mixed, rope_parameters=GEMMA3)
    yield "phi3", t.Phi3Config(**COMMON, sliding_window=6)
    yield "phi3-long", t.Phi3Config(**{**COMMON, "num_key_value_heads": 4}, original_max_position_embeddings=64,
                                    rope_parameters=LONG)
    yield "qwen2-mixed", t.Qwen2Config(**COMMON, use_sliding_window=True, sliding_window=6, max_window_layers=1)
    yield "gpt2", t.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=256, bos_token_id=1,
                               eos_token_id=2, pad_token_id=0)


def randomize(model, seed):
    """Large weights, biases and norms, so that a forgotten term shows and greedy choices are far apart."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        center = parameter.detach() if parameter.dim() == 1 else torch.zeros_like(parameter)
        parameter.data = (center + 0.15 * noise).bfloat16().float()
    return model.eval()


def save(model, folder):
    """The model as transformers loads it again in f32: a cast in place would round the rotary frequencies too."""
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def lm_golden(model):
    golden = []
    for prompt in PROMPTS:
        ids = list(prompt)
        logits = model(torch.tensor([ids])).logits[0]
        for _ in range(32):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        last = logits[-1].tolist()
        sampled = logits[:, ::20].tolist()  # every 20th entry of every row, and the last row whole
        golden.append({"ids": prompt, "every_20th": rounded(sampled), "last": rounded([last])[0],
                       "greedy": ids[len(prompt):]})
    return {"prompts": golden}


def rounded(rows):
    return [[round(x, 6) for x in row] for row in rows]


@torch.no_grad()
def score_golden(model):
    golden = []
    for prompt in PROMPTS:
        values = [model(torch.tensor([prompt[:n + 1]])).logits[0, 0].item() for n in range(len(prompt))]
        golden.append({"ids": prompt, "values": [round(x, 6) for x in values]})
    return {"prompts": golden}


def write_golden(folder, golden):
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def make_lora(out):
    import peft

    base = AutoModelForCausalLM.from_pretrained(out / "llama", dtype=torch.float32).eval()
    options = peft.LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, options)
    generator = torch.Generator().manual_seed(9)
    for name, parameter in sorted(model.named_parameters()):
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    folder = out / "llama-lora"
    shutil.rmtree(folder, ignore_errors=True)
    model.peft_config["default"].base_model_name_or_path = "llama"
    model.save_pretrained(folder)
    (folder / "adapter_model.safetensors").chmod(0o644)
    (folder / "README.md").unlink(missing_ok=True)
    write_golden(folder, lm_golden(model.eval()))


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/models")
    torch.set_num_threads(1)
    for name, config in configs():
        seed = SEEDS.index(name)
        model = randomize(AutoModelForCausalLM.from_config(config, dtype=torch.float32), seed)
        write_golden(out / name, lm_golden(save(model, out / name)))
        config.num_labels = 1
        scorer = randomize(AutoModelForSequenceClassification.from_config(config, dtype=torch.float32), 100 + seed)
        write_golden(out / f"{name}-score", score_golden(save(scorer, out / f"{name}-score")))
    make_lora(out)


if __name__ == "__main__":
    main()
