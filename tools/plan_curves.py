#!/usr/bin/env python3
"""Learning does not depend on the plan: the PPO stage of the quickstart, which samples freely, under five plans and beside them
with five seeds in one process. Exits non-zero unless

* a plan's rewards, KL and lengths are those of one process (within 1e-3 of their size) in every step before the first one in which
  a sampled token differs: a draw may lie on the edge between two tokens, and sums in another order round differently;
* the mean reward of a plan's last steps lies between the least and the greatest of the five seeds. (Plans have the seed in the middle.)

The models that it starts from are those of `make quickstart` (runs/quickstart); where they are missing it makes them.

Usage: plan_curves.py BRAID [--out OUT.json]"""
import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "plan_curves"
SEEDS = (1, 2, 3, 4, 5)
STEPS, PROMPTS, LAST = 80, 128, 10
REWARD = "reward/raw_mean"
COMPARED = (REWARD, "reward/gold_mean", "kl/ref_k1", "length/response_mean")
CALLS = ("generate", "reward", "old_logprob", "ref_logprob", "values", "update_actor", "update_critic")


def everywhere(devices, layout, **others):
    """A plan in which every call has this layout, but for those that are named."""
    return devices, {call: others.get(call, layout) for call in CALLS}


PLANS = {
    "dp2": everywhere(2, "dp: 2"),
    "tp2": everywhere(2, "tp: 2"),
    "pp2": everywhere(2, "dp: 2", update_actor="pp: 2", update_critic="pp: 2"),
    "apart": everywhere(2, "dp: 2", reward="mesh: 1", ref_logprob="mesh: 0", values="mesh: 1", update_actor="mesh: 0", update_critic="mesh: 1"),
    "each": everywhere(4, "dp: 4", old_logprob="dp: 2, tp: 2", values="tp: 2, mesh: 0-1", update_actor="dp: 2, pp: 2, zero: 3",
                       update_critic="dp: 2, tp: 2, zero: 1"),
}


def plan_text(devices, calls):
    lines = [f"  {call}: {{{layout if 'mesh' in layout else 'mesh: all, ' + layout}}}" for call, layout in calls.items()]
    return "\n".join(["graph: ppo", f"devices: 1x{devices}", "calls:", *lines]) + "\n"


def train(braid, name, *options):
    """A run of the stage; returns the rows of its metrics and its rollouts by step."""
    subprocess.run([braid, "train", "examples/quickstart/ppo.yaml", f"run.dir={RUNS}", f"run.name={name}", "run.overwrite=true", f"train.total_steps={STEPS}",
                    f"rollout.prompts_per_step={PROMPTS}", "rollout.record=true", "train.threads=1", "log.console=false", "log.tensorboard=false", *options],
                   cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(RUNS / name / "metrics.jsonl", encoding="utf-8")]
    tokens = {}
    for line in open(RUNS / name / "rollouts.jsonl", encoding="utf-8"):
        row = json.loads(line)
        tokens.setdefault(row["step"], {})[row["sample"]] = row["response_ids"]
    return rows, [tokens[step] for step in sorted(tokens)]


def first_other_step(a, b):
    """The first step whose sampled tokens differ; the number of steps where none does."""
    return next((i for i, (left, right) in enumerate(zip(a, b)) if left != right), len(a))


def last_reward(rows):
    return sum(row[REWARD] for row in rows[-LAST:]) / LAST


def differences(rows, one, steps):
    """The largest relative difference of what is compared, over the first `steps` steps."""
    return max((abs(a[key] - b[key]) / max(abs(b[key]), 1e-1) for a, b in zip(rows[:steps], one[:steps]) for key in COMPARED), default=0.0)


def make_models(braid):
    for stage, role in (("sft", "actor"), ("rm", "reward")):
        if not (ROOT / "runs/quickstart" / stage / "export" / role).exists():
            subprocess.run([braid, "train", f"examples/quickstart/{stage}.yaml", "run.overwrite=true", "log.console=false"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--out")
    arguments = parser.parse_args()
    make_models(arguments.braid)
    RUNS.mkdir(parents=True, exist_ok=True)
    seeds = {seed: train(arguments.braid, f"seed{seed}", f"train.seed={seed}") for seed in SEEDS}
    ends = {seed: last_reward(rows) for seed, (rows, _) in seeds.items()}
    least, seed, greatest = (sorted(SEEDS, key=ends.get)[i] for i in (0, len(SEEDS) // 2, -1))
    one_rows, one_tokens = seeds[seed]
    print(f"one process, {len(SEEDS)} seeds: rewards of the last {LAST} of {STEPS} steps from {ends[least]:.3f} to {ends[greatest]:.3f}; plans have seed {seed}: {ends[seed]:.3f}", flush=True)
    found, passed = [], True
    for name, (devices, calls) in PLANS.items():
        plan = RUNS / f"{name}.plan.yaml"
        plan.write_text(plan_text(devices, calls))
        shutil.rmtree(RUNS / name, ignore_errors=True)
        (RUNS / name).mkdir()
        shutil.copy(RUNS / f"seed{seed}" / "kernels.txt", RUNS / name)  # libraries round differently
        rows, tokens = train(arguments.braid, name, f"train.seed={seed}", f"plan.file={plan}")
        equal, end = first_other_step(tokens, one_tokens), last_reward(rows)
        worst = differences(rows, one_rows, equal)
        ok = worst <= 1e-3 and ends[least] <= end <= ends[greatest]
        passed &= ok
        found.append({"plan": name, "ranks": devices, "equal_steps": equal, "largest_difference": worst, "last_reward": round(end, 4), "ok": ok})
        print(f"{name} ({devices} ranks): the same tokens for {equal} of {STEPS} steps, there within {worst:.1e}; last rewards {end:.3f}: {'ok' if ok else 'MISSED'}", flush=True)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"seeds": {seed: round(end, 4) for seed, end in ends.items()}, "plans": found}, indent=1) + "\n")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
