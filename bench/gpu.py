#!/usr/bin/env python3
"""How fast one GPU trains and generates, beside transformers on the same GPU.

  python3 bench/gpu.py [--braid build/braid] [--work build/bench-gpu] [--device cuda] [--sequences 256] [--response 256]
                       [--rows 32] [--row-tokens 510] [--size 0.5b] [--recompute] [--only sft] [--peer | --predict]

The model has the sizes of Qwen2 0.5B (or 1.5B) and random weights, in bf16. Two runs: supervised fine-tuning of rows of
about 510 tokens, and GRPO whose responses all have the same length. Printed are the medians of the steps behind the first, phase by phase,
and the most memory that the GPU held (nvidia-smi). With --peer (needs torch and transformers in this Python) the same
model generates with transformers' generate() as many tokens in one batch, and trains on as many with its forward and
backward, torch's fused AdamW and weights in bf16 alone (Braid keeps weights and sums of gradients in f32 too).
With --predict `braid profile` measures the GPU first, and what each call was predicted to take by it, and the memory of the
step, stand beside what was measured.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMPT_DIGITS, MICRO_TOKENS = 64, 8192
SIZES = {"0.5b": (24, 896, 4864, 14), "1.5b": (28, 1536, 8960, 12)}  # layers, hidden, intermediate, heads


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--work", default="build/bench-gpu")
    p.add_argument("--device", default="cuda")
    p.add_argument("--sequences", type=int, default=256)
    p.add_argument("--response", type=int, default=256)
    p.add_argument("--rows", type=int, default=32)
    p.add_argument("--row-tokens", type=int, default=510)
    p.add_argument("--size", choices=SIZES, default="0.5b")
    p.add_argument("--recompute", action="store_true")
    p.add_argument("--only", choices=("sft", "grpo"))
    p.add_argument("--peer", action="store_true")
    p.add_argument("--predict", action="store_true")
    return p.parse_args()


def model_config(args):
    layers, hidden, intermediate, heads = SIZES[args.size]
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936, "hidden_size": hidden,
            "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "hidden_act": "silu", "tie_word_embeddings": True, "initializer_range": 0.02, "bos_token_id": 1,
            "eos_token_id": 2, "torch_dtype": "bfloat16"}


def write_inputs(args, work):
    """Digits with blanks between them, of which the quickstart's tokenizer makes a token each."""
    draw = random.Random(1)
    digits = lambda count: " ".join(str(draw.randint(0, 9)) for _ in range(count))
    (work / "config.json").write_text(json.dumps(model_config(args)))
    sft = [{"prompt": digits(PROMPT_DIGITS), "response": digits(args.row_tokens // 2 - PROMPT_DIGITS)} for _ in range(512)]
    rl = [{"prompt": digits(draw.randint(20, 60))} for _ in range(512)]
    for name, rows in (("sft", sft), ("rl", rl)):
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class GpuMemory(threading.Thread):
    """The most that nvidia-smi shows, in GiB."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.ends = 0.0, False
        self.start()

    def run(self):
        while not self.ends:
            asked = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                   capture_output=True, text=True)
            self.most = max([self.most] + [float(line) / 1024 for line in asked.stdout.split() if line.isdigit()])
            time.sleep(0.2)

    def end(self):
        self.ends = True
        self.join()
        return self.most


def profile(args, work):
    """Times of the model's layers on the device, for cluster.profile."""
    out = work / "profile.json"
    subprocess.run([args.braid, "profile", str(work), "--device", args.device, "--dtype", "bf16", "--out", str(out)], check=True,
                   stdout=subprocess.DEVNULL)
    return [f"cluster.profile={out}"]


def show_prediction(work, name):
    found = json.loads((work / name / "predicted.json").read_text())
    for call in [*found["calls"], {"call": "step", **found["step"]}]:
        if call["predicted_s"] > 0:
            print(f"  {call['call']}: predicted {call['predicted_s']:.3f} s, measured {call['measured_s']:.3f} s", flush=True)
    for rank in found["ranks"]:
        print(f"  memory: predicted {rank['predicted_bytes'] / 2**30:.1f} GiB, measured {rank['measured_bytes'] / 2**30:.1f} GiB", flush=True)


def run(args, work, name, steps, keys):
    """Rows of metrics. The run is ended behind its last step but one: what it saves in the end is not measured. With a
    prediction it is not ended, since it is told in the end."""
    if args.predict:
        keys = [*keys, *args.profile]
    shutil.rmtree(work / name, ignore_errors=True)
    memory = GpuMemory() if args.device.startswith("cuda") else None
    with open(work / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            [args.braid, "train", f"run.dir={work}", f"run.name={name}", f"model.config={work}/config.json",
             "model.dtype=bf16", f"tokenizer.path={ROOT}/examples/quickstart/model", f"device={args.device}",
             f"data.max_prompt_length={max(512, args.row_tokens)}", f"train.recompute={str(args.recompute).lower()}",
             f"train.micro_tokens={MICRO_TOKENS}", f"train.total_steps={steps + 1}",
             "checkpoint.every_minutes=0", "log.samples_every=0", "log.tensorboard=false", "log.console=false", *keys],
            stdout=log, stderr=log)
        metrics = work / name / "metrics.jsonl"
        read = lambda: [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
        while process.poll() is None and (args.predict or len(read()) < steps):
            time.sleep(0.1)
        process.kill()
        process.wait()
    rows = read()
    if len(rows) < steps:
        sys.exit((work / f"{name}.log").read_text()[-2000:])
    return rows, memory.end() if memory else 0.0


def report(name, rows, memory, keys):
    behind = rows[1:]
    middle = lambda key: statistics.median(row[key] for row in behind)
    phases = {key: middle(key) for key in behind[0] if key.startswith("time/") and key != "time/step"}
    print(f"{name}: step {middle('time/step'):.3f} s ("
          + ", ".join(f"{key[5:]} {took:.3f}" for key, took in sorted(phases.items(), key=lambda p: -p[1]) if took > 0.01)
          + "); " + ", ".join(f"{label} {middle(key):.0f} tokens/s" for key, label in keys.items())
          + (f"; {memory:.1f} GiB at most" if memory else ""), flush=True)


def peer(args, work):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    sizes = {k: v for k, v in model_config(args).items() if k not in ("architectures", "model_type", "torch_dtype")}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes)).to(torch.bfloat16).to(args.device)

    def timed(work):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    def generate(tokens):
        with torch.no_grad():
            model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, temperature=1.0,
                           max_new_tokens=tokens, min_new_tokens=tokens, eos_token_id=None, pad_token_id=0)

    def step():
        for _ in range(micro_batches):
            model(input_ids=rows, labels=rows).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    prompts = torch.randint(3, 40, (args.sequences, 80), device=args.device)
    generate(8)
    took = timed(lambda: generate(args.response))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: generate() of {args.sequences} sequences "
          f"{args.sequences * args.response / took:.0f} tokens/s", flush=True)
    rows = torch.randint(3, 40, (MICRO_TOKENS // 512, 512), device=args.device)
    micro_batches = max(1, args.rows * 512 // MICRO_TOKENS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step()
    took = min(timed(step) for _ in range(3))
    print(f"transformers: training {micro_batches * rows.numel() / took:.0f} tokens/s, step {took:.3f} s; "
          f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of tensors at most", flush=True)


def grpo(args, work):
    samples = min(8, args.sequences)
    rows, memory = run(args, work, "grpo", 3,
                       ["algorithm.name=grpo", f"data.train={work}/rl.jsonl", "rollout.ignore_eos=true",
                        f"rollout.prompts_per_step={args.sequences // samples}", f"rollout.samples_per_prompt={samples}",
                        f"rollout.max_response_length={args.response}", f"rollout.max_concurrent={args.sequences}",
                        "reward=[{type: rule, rule: digit_share}]"])
    report("grpo", rows, memory, {"perf/gen_tokens_per_s": "generation", "perf/train_tokens_per_s": "training"})
    if args.predict:
        show_prediction(work, "grpo")


def main():
    args = arguments()
    work = Path(args.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.braid = str(Path(args.braid).resolve())
    write_inputs(args, work)
    args.profile = profile(args, work) if args.predict else []
    if args.only != "grpo":
        rows, memory = run(args, work, "sft", 5, ["algorithm.name=sft", f"data.train={work}/sft.jsonl",
                                                  f"rollout.prompts_per_step={args.rows}"])
        report("sft", rows, memory, {"perf/train_tokens_per_s": "training"})
        if args.predict:
            show_prediction(work, "sft")
    if args.only != "sft":
        grpo(args, work)
    if args.peer:
        peer(args, work)


if __name__ == "__main__":
    main()
