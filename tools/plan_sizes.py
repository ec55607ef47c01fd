#!/usr/bin/env python3
"""Prints the table of docs/which_plan.md: the plan that `braid plan` finds for models of 7B, 13B, 14B and 70B on 8 to 128 GPUs, its step,
the interval that holds the real step four times of five, and its memory.

The interval is the one that `braid validate` gives for a step of an engine that the fit of the prices has not seen: half of its width,
as a factor, from a row of the published RL steps under another engine's name.

Usage: plan_sizes.py RUN.yaml [--ppo] [--models A,B] [--nodes 1,2] COMMAND       COMMAND is `braid`; --ppo: PPO with a critic and a reward
                                                                               model of the same size
"""
import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = ROOT / "examples" / "measurements" / "measurements.csv"


def ran(command):
    child = subprocess.run(command, capture_output=True, text=True)
    return child.returncode, child.stdout, child.stderr


def interval_factor(braid):
    """High end of the interval of an RL step over the predicted value."""
    with open(STEPS, newline="") as file:
        reader = csv.DictReader(file)
        rows, names = [row for row in reader if row["kind"] == "rl_step"], reader.fieldnames
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "steps.csv", Path(folder) / "out.json"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows({**row, "engine": "another"} for row in rows)
        ran([braid, "validate", str(path), "--json", str(out)])  # exit code 1 where a goal is missed
        priced = [row for row in json.loads(out.read_text())["rows"] if row["supported"]]
    factors = {round(row["high"] / row["predicted"], 4) for row in priced}
    if len(factors) != 1:
        sys.exit(f"the intervals of {len(priced)} RL steps differ: {sorted(factors)}")
    return factors.pop()


def layout(call, devices):
    """The layout of a call in a few words."""
    words = [f"{key}{call[key]}" for key in ("dp", "tp", "pp") if call[key] > 1 or key == "dp"]
    if call["interleave"] > 1:
        words.append(f"interleave={call['interleave']}")
    if call["zero"]:
        words.append(f"zero={call['zero']}")
    if call["recompute"] != "none":
        words.append(f"recompute={call['recompute']}")
    if call["micro_batches"] > 1:
        words.append(f"micro_batches={call['micro_batches']}")
    if len(call["mesh"]) < devices:
        words.append(f"on {len(call['mesh'])} GPUs")
    return " ".join(words)


def on_host(plan):
    """What the plan leaves in host memory while it rests."""
    words = []
    for role in plan["roles"]:
        what = [part for part in ("weights", "optimizer") if role[part] == "host"]
        if what:
            words.append(f"{role['role']}: {', '.join(what)}")
    return "; ".join(words)


def row(braid, args, model, nodes, factor):
    keys = [f"model.size={model}", f"cluster.nodes={nodes}"]
    if args.ppo:
        keys += ["algorithm.name=ppo", f"critic.size={model}", f"reward=[{{type: model, size: {model}}}]"]
    code, out, err = ran([braid, "plan", args.run, *keys, "--max-units", "1", "--layouts-only", "--json"])
    devices = 8 * nodes
    if code == 2:
        return f"| {model} | {devices} | does not fit | | | | | |"
    if code:
        sys.exit(f"{model} on {devices}: {err}")
    answer = json.loads(out)
    calls = {call["call"]: call for call in answer["plan"]["calls"]}
    step = answer["step_s"]
    cells = [model, devices, layout(calls["generate"], devices), layout(calls["update_actor"], devices), on_host(answer["plan"]), f"{step:.0f}",
             f"{step / factor:.0f} to {step * factor:.0f}", f"{answer['peak_gib']:.0f}"]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("run")
    parser.add_argument("braid")
    parser.add_argument("--ppo", action="store_true")
    parser.add_argument("--models", default="qwen2.5-7b,llama2-13b,qwen2.5-14b,llama3-70b")
    parser.add_argument("--nodes", default="1,2,4,8,16")
    args = parser.parse_args()
    factor = interval_factor(args.braid)
    print("| model | GPUs | generation | update of the actor | in host memory while it rests | step, s | 4 of 5 steps, s | peak, GiB |")
    print("|---|---|---|---|---|---|---|---|")
    for model in args.models.split(","):
        for nodes in args.nodes.split(","):
            print(row(args.braid, args, model, int(nodes), factor), flush=True)


if __name__ == "__main__":
    main()
