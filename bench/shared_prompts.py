#!/usr/bin/env python3
"""Steps of GRPO with shared prompts, with whole samples, and the bare GEMMs of whole samples.

  python3 bench/shared_prompts.py [--shapes 8x4x64x128,...] [--preset small] [--rounds 3] [--json out.json]

A shape is prompts x samples x prompt tokens x response tokens. In each round and for each shape: the bare list of
GEMMs (build/matmul_list), which counts every sample whole, then one process with train.share_prompts=auto and one
with =never, on the same random weights and prompts. f32, two threads. The first step of a process is left out; of the
others the median counts, of the rounds the median of their ratios. Beside other work the ratio of CPU seconds of whole
processes says more: --replay leaves generation out of them, --threads 1 the waits of threads. Goals stand beside the
shapes that have one.
"""

import argparse
import json
import resource
import shutil
import statistics
from pathlib import Path

from runs import PRESETS, ROOT, run, training_keys, write_model, write_prompts

SHAPES = "8x4x64x128,4x8x64x128,2x16x64x128,8x4x256x128,1x8x896x64"
GOALS = {("small", "8x4x64x128"): "step / bare < 1.0", ("small", "1x8x896x64"): "step ≤ 3 s"}
CALLS = {"time/generate": "generate", "time/ref_logprob": "score", "time/update_actor": "update"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default=SHAPES)
    p.add_argument("--preset", default="small", choices=PRESETS)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3, help="timed steps of every process")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--replay", action="store_true", help="record the responses once and do not generate")
    p.add_argument("--micro-tokens", type=int, default=1536)
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--products", default="build/matmul_list")
    p.add_argument("--work", default="build/bench-shared-prompts")
    p.add_argument("--json", default="")
    return p.parse_args()


class Bench:
    def __init__(self, a):
        self.a = a
        self.work = (ROOT / a.work).resolve()
        self.vocab = write_model(self.work / "config.json", **PRESETS[a.preset])["vocab_size"]

    def step(self, shape, share, *more):
        """Median seconds of a step and of its calls, and CPU seconds of the process."""
        prompts, samples, prompt, response = shape
        data, name = self.work / "prompts.jsonl", "run-" + share
        write_prompts(data, prompts, prompt, prompt, self.vocab)
        shutil.rmtree(self.work / name, ignore_errors=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        common = training_keys(self.work, self.work / "config.json", data, prompt=prompt, prompts=prompts,
                               samples=samples, response=response)
        run([self.a.braid, "train", *common, f"run.name={name}", "algorithm.name=grpo",
             "algorithm.old_logprobs=sampler", "train.minibatches=1", f"train.micro_tokens={self.a.micro_tokens}",
             f"train.threads={self.a.threads}", f"train.total_steps={self.a.steps + 1}", f"train.share_prompts={share}",
             *more])
        cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        lines = (self.work / name / "metrics.jsonl").read_text().splitlines()[1:]
        rows = [json.loads(line) for line in lines]
        return {"cpu_s": cpu_s, **{key: statistics.median(row[key] for row in rows) for key in ["time/step", *CALLS]}}

    def round(self, shape):
        name = "x".join(map(str, shape))
        products = json.loads(run([self.a.products, "grpo", self.a.preset, "f32", self.a.threads, name]))
        more = []
        if self.a.replay:
            self.step(shape, "never", "rollout.record=true")
            responses = self.work / "rollouts.jsonl"
            shutil.copy(self.work / "run-never/rollouts.jsonl", responses)
            more = [f"rollout.replay={responses}"]
        return {"bare_s": products["fastest"]["step_s"], "auto": self.step(shape, "auto", *more),
                "never": self.step(shape, "never", *more)}


def summary(rounds):
    def median(of):
        return statistics.median(of(r) for r in rounds)

    out = {"bare_s": median(lambda r: r["bare_s"])}
    for share in ("auto", "never"):
        out[share] = {key: median(lambda r: r[share][key]) for key in rounds[0][share]}
        out[share]["over_bare"] = median(lambda r: r[share]["time/step"] / r["bare_s"])
    out["shared_over_whole"] = median(lambda r: r["auto"]["time/step"] / r["never"]["time/step"])
    out["cpu"] = median(lambda r: r["auto"]["cpu_s"] / r["never"]["cpu_s"])
    return out


def print_row(name, row, goal):
    shared, whole = row["auto"], row["never"]
    calls = " | ".join(f"{shared[key]:.2f} / {whole[key]:.2f}" for key in ["time/step", *CALLS])
    print(f"| {name} | {calls} | {row['shared_over_whole']:.2f} | {row['cpu']:.2f} | "
          f"{shared['over_bare']:.2f} | {whole['over_bare']:.2f} | {goal} |", flush=True)


def main():
    a = arguments()
    bench, results = Bench(a), {}
    print(f"| {a.preset}: prompts x samples x prompt x response | step, s: shared / whole | "
          + " | ".join(f"{name}, s" for name in CALLS.values())
          + " | shared / whole | CPU, shared / whole | shared / bare | whole / bare | goal |")
    print("|---" * (7 + len(CALLS)) + "|")
    for name in a.shapes.split(","):
        shape = [int(x) for x in name.split("x")]
        rounds = [bench.round(shape) for _ in range(a.rounds)]
        results[name] = {**summary(rounds), "rounds": rounds}
        print_row(name, results[name], GOALS.get((a.preset, name), ""))
    if a.json:
        Path(a.json).write_text(json.dumps({"preset": a.preset, "shapes": results}, indent=1))


if __name__ == "__main__":
    main()
