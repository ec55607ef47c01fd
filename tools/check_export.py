#!/usr/bin/env python3
"""Loads a folder that Braid exported with transformers (and PEFT, where it holds adapters) and compares its numbers with
those of `braid score`.

Usage: check_export.py FOLDER SCORES.jsonl   (lines {"ids", "logprobs"} or {"ids", "values"})
Exit code 0: equal to 2e-4 in f32; 1: not equal, or the folder does not load; 3: transformers, or the peft that
an adapter folder needs, is not installed.
"""
import json
import sys
from pathlib import Path

TOLERANCE = 2e-4


def next_logprobs(model, ids, torch):
    logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    return [logprobs[t, ids[t + 1]].item() for t in range(len(ids) - 1)]


def scalar_values(model, ids, torch):
    return [model(torch.tensor([ids[: n + 1]])).logits[0, 0].item() for n in range(len(ids))]


def load(folder, kind, torch):
    options = {"dtype": torch.float32, "local_files_only": True}
    if not Path(folder, "adapter_config.json").exists() or Path(folder, "config.json").exists():
        return kind.from_pretrained(folder, **options)
    from peft import PeftModel

    base = json.loads(Path(folder, "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    labels = {"num_labels": 1} if "Sequence" in kind.__name__ else {}
    return PeftModel.from_pretrained(kind.from_pretrained(base, **options, **labels), folder)


def main():
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    except ImportError:
        print("transformers is not installed")
        return 3
    folder, scores = sys.argv[1], [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
    scalar = "values" in scores[0]
    kind = AutoModelForSequenceClassification if scalar else AutoModelForCausalLM
    try:
        model = load(folder, kind, torch).eval()
    except ImportError as missing:
        print(missing)
        return 3
    worst = 0.0
    with torch.no_grad():
        for line in scores:
            ours = line["values"] if scalar else line["logprobs"][1:]
            theirs = (scalar_values if scalar else next_logprobs)(model, line["ids"], torch)
            assert len(ours) == len(theirs), "a number per token"
            worst = max([worst] + [abs(a - b) for a, b in zip(ours, theirs)])
    print(f"largest difference {worst:.2e}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
