#!/usr/bin/env python3
"""Learning does not depend on the plan: the PPO stage of the quickstart, which samples freely, under five plans and beside them
with five seeds in one process. Exits non-zero unless

* a plan's rewards, KL and lengths are those of one process (within 1e-3 of their size) in every step before the first one in which
  a sampled token differs: a draw may lie on the edge between two tokens, and sums in another order round differently;
* so they are when a plan goes on late in the stage, from a checkpoint of one process;
* the mean reward of a plan's last steps, over the seeds with the least, the middle and the greatest reward, lies between the
  least and the greatest of the five seeds.

After the first other token two runs of one seed soon have nothing but their prompts in common: a difference of rounding grows a
thousandfold in ten steps, in one process with other micro-batches as well. A plan's run is then one more draw beside the five, and a
sixth draw lies outside of five every third time. So a plan is judged by its mean over several seeds, and by the second half of
the stage: of ten steps of 128 prompts the mean reward is uncertain by 0.13, which is as much as the seeds are apart.

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
STEPS, PROMPTS, LAST, LATE = 80, 128, 40, 60
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


def train(braid, name, *options, steps=STEPS):
    """A run of the stage; returns the rows of its metrics and its rollouts by step."""
    subprocess.run([braid, "train", "examples/quickstart/ppo.yaml", f"run.dir={RUNS}", f"run.name={name}", f"train.total_steps={steps}",
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


class Agreement:
    """How long a plan's run draws what one process draws, and how far apart they are until then."""

    def __init__(self, run, one, begin=0):
        (rows, tokens), (one_rows, one_tokens) = run, one
        self.steps = first_other_step(tokens[begin:], one_tokens[begin:])
        end = begin + self.steps
        self.worst = max((abs(a[key] - b[key]) / max(abs(b[key]), 1e-1) for a, b in zip(rows[begin:end], one_rows[begin:end]) for key in COMPARED),
                         default=0.0)
        self.ok = self.steps > 0 and self.worst <= 1e-3


def make_models(braid):
    for stage, role in (("sft", "actor"), ("rm", "reward")):
        if not (ROOT / "runs/quickstart" / stage / "export" / role).exists():
            subprocess.run([braid, "train", f"examples/quickstart/{stage}.yaml", "run.overwrite=true", "log.console=false"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def fresh(name, like):
    """An empty run folder with the choice of libraries of another run, since libraries round differently."""
    shutil.rmtree(RUNS / name, ignore_errors=True)
    (RUNS / name).mkdir()
    shutil.copy(RUNS / like / "kernels.txt", RUNS / name)
    return name


def copied(name, run):
    shutil.rmtree(RUNS / name, ignore_errors=True)
    shutil.copytree(RUNS / run, RUNS / name)
    return name


def try_plan(braid, name, ones, ordered, late):
    """Runs a plan beside one process; `ones`: the runs by seed, `ordered`: least, middle and greatest seed."""
    plan = f"plan.file={RUNS / name}.plan.yaml"
    devices, calls = PLANS[name]
    (RUNS / f"{name}.plan.yaml").write_text(plan_text(devices, calls))
    runs = {seed: train(braid, fresh(f"{name}{seed}", f"seed{seed}"), "run.overwrite=true", f"train.seed={seed}", plan) for seed in ordered}
    begin = [Agreement(runs[seed], ones[seed]) for seed in ordered]
    middle = ordered[1]
    later = Agreement(train(braid, copied(f"{name}_late", late), "checkpoint.resume=auto", f"train.seed={middle}", plan), ones[middle], LATE)
    end = sum(last_reward(rows) for rows, _ in runs.values()) / len(runs)
    ends = [last_reward(ones[seed][0]) for seed in ordered]
    ok = all(each.ok for each in [*begin, later]) and ends[0] <= end <= ends[-1]
    print(f"{name} ({devices} ranks): the same tokens for {', '.join(str(each.steps) for each in begin)} of {STEPS} steps, there within "
          f"{max(each.worst for each in begin):.1e}; from step {LATE} on for {later.steps}, within {later.worst:.1e}; last rewards {end:.3f}: "
          f"{'ok' if ok else 'MISSED'}", flush=True)
    return {"plan": name, "ranks": devices, "equal_steps": [each.steps for each in begin], "largest_difference": max(each.worst for each in begin),
            "equal_late_steps": later.steps, "largest_late_difference": later.worst,
            "last_rewards": [round(last_reward(rows), 4) for rows, _ in runs.values()], "last_reward": round(end, 4), "ok": ok}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--out")
    arguments = parser.parse_args()
    make_models(arguments.braid)
    RUNS.mkdir(parents=True, exist_ok=True)
    ones = {seed: train(arguments.braid, f"seed{seed}", "run.overwrite=true", f"train.seed={seed}") for seed in SEEDS}
    ends = {seed: last_reward(rows) for seed, (rows, _) in ones.items()}
    ordered = [sorted(SEEDS, key=ends.get)[i] for i in (0, len(SEEDS) // 2, -1)]
    print(f"one process, {len(SEEDS)} seeds: rewards of the last {LAST} of {STEPS} steps from {ends[ordered[0]]:.3f} to {ends[ordered[-1]]:.3f}; "
          f"plans have seeds {', '.join(map(str, ordered))}", flush=True)
    late = fresh("late", f"seed{ordered[1]}")
    train(arguments.braid, late, "run.overwrite=true", f"train.seed={ordered[1]}", steps=LATE)
    found = [try_plan(arguments.braid, name, ones, ordered, late) for name in PLANS]
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"seeds": {seed: round(end, 4) for seed, end in ends.items()}, "plans": found}, indent=1) + "\n")
    sys.exit(0 if all(each["ok"] for each in found) else 1)


if __name__ == "__main__":
    main()
