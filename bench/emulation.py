#!/usr/bin/env python3
"""Steps of plans on emulated devices beside the simulator's prediction of them.

  python3 bench/emulation.py [--only NAMES] [--jitter X] [--mutants] [--braid build/braid] [--json out.json]

Each plan is run by `braid train` with device=emulated (docs/emulation.md): 8 to 32 ranks, which are processes of this
machine. Printed for each: predicted and emulated step in seconds of the model, how far they are apart, the largest
difference of the end of any op or message as a share of the step, how long devices wait, how much of what moves is
hidden behind computation, and what the real communication took. The last lines are the goals: every step within 10 %,
at least five plans with more than 30 % of waiting or overlap, rank correlation of all steps at least 0.95.

With --mutants each plan is run with right lists and with lists that are wrong in one place (runtime.fault): a wait is
dropped that matters by the simulator, or two messages are swapped. A fault is caught where some op ends more than 10 %
of the step away from the prediction of the right lists, or where an error names what came out of its order. Exit code
1: a fault was missed, or a step without one is not within 10 %.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEAR = 0.1
FAULTS = ("dropped_wait", "swapped_messages")

PPO = ["algorithm.name=ppo", "model.size=llama2-7b", "critic.size=llama2-7b", "reward=[{type: model, size: llama2-7b}]"]
GRPO = ["algorithm.name=grpo", "model.size=qwen2.5-7b", "reward=[{type: rule, rule: numeric}]",
        "rollout.samples_per_prompt=8"]
COMMON = ["model.dtype=bf16", "train.minibatches=2", "data.max_prompt_length=256", "rollout.max_response_length=512",
          "workload.prompt_length=128", "workload.response_length={mean: 300, sigma: 0.5, longest: 512}"]
MOE = ["algorithm.name=grpo", "model.size=mixtral-8x7b", "reward=[{type: rule, rule: numeric}]",
       "rollout.samples_per_prompt=8"]


def cluster(nodes):
    return [f"cluster={{gpu: h100-80g, nodes: {nodes}}}", f"rollout.prompts_per_step={128 * nodes}"]


def plan(graph, nodes, calls, extra=""):
    lines = [f"graph: {graph}", f"devices: {nodes}x8", "calls:"]
    lines += [f"  {name}: {{{fields}}}" for name, fields in calls.items()]
    return "\n".join(lines) + "\n" + extra


def everywhere(graph, generate, score, train, **others):
    """The same for calls of a kind."""
    calls = {"generate": generate, "old_logprob": score, "ref_logprob": score, "update_actor": train}
    if graph == "ppo":
        calls.update({"reward": score, "values": score, "update_critic": train})
    calls.update(others)
    return calls


DP8 = "mesh: all, dp: 8, tp: 1, pp: 1, micro_tokens: 8192"
DP16 = "mesh: all, dp: 16, tp: 1, pp: 1, micro_tokens: 8192"
DP32 = "mesh: all, dp: 32, tp: 1, pp: 1, micro_tokens: 8192"

# name: (nodes, configuration, plan text or None where keys of the configuration state it)
PLANS = {
    "ppo-8 one layout": (1, PPO + ["parallel={tp: 2, zero: 1}", "placement=colocated"], None),
    "ppo-8 zero-3, host": (1, PPO, plan("ppo", 1, everywhere(
        "ppo", "mesh: all, dp: 4, tp: 2, pp: 1", DP8, DP8 + ", zero: 3, recompute: full",
        reward="mesh: 4-7, dp: 4, tp: 1, pp: 1, micro_tokens: 8192",
        ref_logprob="mesh: 0-3, dp: 4, tp: 1, pp: 1, micro_tokens: 8192"),
        "roles:\n  reference: {weights: host, prefetch: true}\n  reward: {weights: host, prefetch: true}\n")),
    "ppo-8 split": (1, PPO + ["placement=split", "parallel={tp: 2}"], None),
    "ppo-8 standalone": (1, PPO + ["placement=standalone", "parallel={tp: 1}"], None),
    "ppo-8 apart": (1, PPO + ["placement=disaggregated", "parallel={tp: 2}"], None),
    "ppo-8 pipelines": (1, PPO, plan("ppo", 1, everywhere(
        "ppo", "mesh: all, dp: 4, tp: 2, pp: 1", "mesh: all, dp: 4, tp: 1, pp: 2, micro_batches: 4",
        "mesh: all, dp: 2, tp: 1, pp: 4, micro_batches: 4, recompute: full"))),
    "ppo-8 updates side by side": (1, PPO, plan("ppo", 1, everywhere(
        "ppo", "mesh: all, dp: 8, tp: 1, pp: 1", DP8, "mesh: 0-3, dp: 1, tp: 2, pp: 2, micro_batches: 8",
        update_critic="mesh: 4-7, dp: 2, tp: 2, pp: 1, micro_batches: 8, zero: 1"))),
    "ppo-8 fused updates": (1, PPO, plan("ppo", 1, everywhere(
        "ppo", "mesh: all, dp: 8, tp: 1, pp: 1", DP8, "mesh: all, dp: 1, tp: 2, pp: 4, micro_batches: 8"),
        "fusion: {train_schedules: true, units: 4}\n")),
    "grpo-8 one layout": (1, GRPO, plan("grpo", 1, everywhere(
        "grpo", DP8.replace(", micro_tokens: 8192", ""), DP8, DP8 + ", zero: 1"))),
    "grpo-8 apart": (1, GRPO + ["placement=disaggregated", "parallel={tp: 1, zero: 1}"], None),
    "grpo-8 context": (1, GRPO, plan("grpo", 1, everywhere(
        "grpo", "mesh: all, dp: 4, tp: 2, pp: 1", "mesh: all, dp: 4, tp: 1, cp: 2, pp: 1, micro_tokens: 8192",
        "mesh: all, dp: 2, tp: 2, cp: 2, pp: 1, zero: 1, micro_tokens: 8192"))),
    "ppo-16 megatron": (2, PPO, plan("ppo", 2, everywhere(
        "ppo", "mesh: all, dp: 2, tp: 8, pp: 1", "mesh: all, dp: 1, tp: 8, pp: 2, micro_batches: 4",
        "mesh: all, dp: 1, tp: 8, pp: 2, micro_batches: 8, recompute: full"))),
    "ppo-16 standalone": (2, PPO + ["placement=standalone", "parallel={tp: 2}"], None),
    "ppo-16 colocated": (2, PPO + ["placement=colocated", "parallel={tp: 2, zero: 1}"], None),
    "ppo-16 interleaved": (2, PPO + ["placement=interleaved", "parallel={tp: 2, zero: 1}"], None),
    "ppo-16 apart": (2, PPO + ["placement=disaggregated", "parallel={tp: 2, zero: 1}"], None),
    "ppo-16 split": (2, PPO + ["placement=split", "parallel={tp: 2, zero: 1}"], None),
    "grpo-16 apart": (2, GRPO + ["placement=disaggregated", "parallel={tp: 1, zero: 1}"], None),
    "grpo-16 ahead": (2, GRPO + ["placement=disaggregated", "parallel={tp: 1, zero: 1}", "plan.staleness=1",
                                 "algorithm.tis_cap=2"], None),
    "grpo-16 interleaved pipelines": (2, GRPO, plan("grpo", 2, everywhere(
        "grpo", "mesh: all, dp: 8, tp: 2, pp: 1", DP16,
        "mesh: all, dp: 4, tp: 1, pp: 4, interleave: 2, micro_batches: 8"))),
    "moe-16 experts": (2, MOE, plan("grpo", 2, everywhere(
        "grpo", "mesh: all, dp: 4, tp: 4, pp: 1", "mesh: all, dp: 4, tp: 4, ep: 4, pp: 1, micro_tokens: 8192",
        "mesh: all, dp: 4, tp: 2, ep: 4, pp: 2, zero: 1, micro_batches: 4"))),
    "ppo-32 standalone": (4, PPO + ["placement=standalone", "parallel={tp: 2}"], None),
    "ppo-32 pipelines": (4, PPO, plan("ppo", 4, everywhere(
        "ppo", "mesh: all, dp: 16, tp: 2, pp: 1", DP32, "mesh: all, dp: 4, tp: 2, pp: 4, micro_batches: 8"))),
    "grpo-32 apart": (4, GRPO + ["placement=disaggregated", "parallel={tp: 2, zero: 1}"], None),
}

# Only where --only names them.
LARGE = {
    "ppo-64 split": (8, PPO + ["placement=split", "parallel={tp: 4, zero: 1}"], None),
}

# Settings of docs/ablation.md, with the plan that a short search of everything finds. Only where --only names them.
SEARCHED = ["plan", "--max-units", "2"]


def point(algorithm, size, mean, longest):
    models = {"ppo": [f"critic.size={size}", f"reward=[{{type: model, size: {size}}}]", "rollout.prompts_per_step=256"],
              "grpo": ["reward=[{type: rule, rule: numeric}]", "rollout.samples_per_prompt=8", "rollout.prompts_per_step=32"]}
    return (1, [f"algorithm.name={algorithm}", f"model.size={size}", *models[algorithm], "train.minibatches=4",
                "algorithm.old_logprobs=recompute", f"rollout.max_response_length={longest}", "workload.prompt_length=256",
                f"workload.response_length={{mean: {mean}, sigma: 0.6, longest: {longest}}}"], SEARCHED)


POINTS = {f"point {algorithm}-8 {size} {'long' if mean > 1000 else 'short'}": point(algorithm, size, mean, longest)
          for size, mean, longest in (("qwen2.5-7b", 256, 1024), ("llama2-13b", 256, 1024), ("qwen2.5-7b", 1500, 4096))
          for algorithm in ("ppo", "grpo")}
OTHERS = LARGE | POINTS


def ranks_of(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    for place, i in enumerate(order):
        out[i] = place
    return out


def rank_correlation(a, b):
    """Spearman's, of values that differ."""
    x, y = ranks_of(a), ranks_of(b)
    n = len(x)
    return 1 - 6 * sum((p - q) ** 2 for p, q in zip(x, y)) / (n * (n * n - 1)) if n > 1 else 1.0


def cpu_s():
    """CPU seconds of all processes that this one has started and that have ended."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def run_plan(name, options, folder, *more):
    """How `braid train` ended, what it said, what it wrote (None where it wrote nothing), and how long it took, on the clock and in CPU time."""
    nodes, keys, text = (PLANS | OTHERS)[name]
    run = folder / "-".join([name.replace(" ", "-").replace(",", ""), *more])
    run.mkdir(parents=True)
    if text is SEARCHED:
        found = run / "plan.yaml"
        subprocess.run([options.braid, *SEARCHED, *COMMON, *cluster(nodes), *keys, "--out", str(found)], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
        text = found.read_text()
    command = [options.braid, "train", *COMMON, *cluster(nodes), *keys, "device=emulated", f"run.dir={run}",
               f"runtime.jitter={options.jitter}", f"runtime.time_scale={options.time_scale}", *more]
    if text is not None:
        (run / "plan.yaml").write_text(text)
        command.append(f"plan.file={run / 'plan.yaml'}")
    begin, cpu_begin = time.monotonic(), cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    written = run / "run" / "emulated.json"
    out = json.loads(written.read_text()) if written.exists() else None
    return done.returncode, done.stderr, out, (time.monotonic() - begin, cpu_s() - cpu_begin)


def compare(names, options, folder):
    """Each plan beside its prediction; what was measured by name, and whether the goals are met."""
    print(f"{'plan':28} {'predicted':>10} {'emulated':>10} {'apart':>7} {'ops':>6} {'largest':>8} {'waiting':>8} "
          f"{'hidden':>7} {'overhead':>8} {'scale':>6} {'run s':>6} {'cpu s':>6}")
    results = {}
    for name in names:
        code, said, r, (seconds, cpu) = run_plan(name, options, folder)
        if code != 0:
            sys.exit(f"{name}: {said[-2000:]}")
        results[name] = {**r, "seconds": seconds, "cpu_seconds": cpu}
        predicted, emulated = r["step"]["predicted_s"], r["step"]["emulated_s"]
        results[name]["apart"] = emulated / predicted - 1
        print(f"{name:28} {predicted:10.4g} {emulated:10.4g} {100 * (emulated / predicted - 1):6.1f}% {r['ops']['paired']:6d} "
              f"{100 * r['ops']['largest']:7.1f}% {100 * r['waiting']:7.0f}% {100 * r['overlapped']:6.0f}% "
              f"{100 * r['overhead']:7.1f}% {r['time_scale']:6.3g} {seconds:6.0f} {cpu:6.0f}", flush=True)
    apart = [abs(r["apart"]) for r in results.values()]
    shaped = sum(r["waiting"] > 0.3 or r["overlapped"] > 0.3 for r in results.values())
    correlation = rank_correlation([r["step"]["predicted_s"] for r in results.values()],
                                   [r["step"]["emulated_s"] for r in results.values()])
    print(f"{len(results)} plans: {sum(a <= NEAR for a in apart)} within 10 %, the farthest {100 * max(apart):.1f} %; "
          f"{shaped} with more than 30 % of waiting or overlap; rank correlation {correlation:.3f}")
    return results, max(apart) <= NEAR


def outcome(code, said, out):
    """(whether there was a place for the fault, whether the step shows one, how) of a step whose lists may be wrong."""
    errors = [line for line in said.splitlines() if line.startswith("braid: error: ")]
    if code != 0 and "runtime.fault: no " in said:
        return False, False, errors[0].split("runtime.fault: ")[1]
    if out is None or code != 0:
        named = errors[0].removeprefix("braid: error: ") if errors else said[-200:]
        return True, "out of its order" in named, f"named: {named[:150]}"
    ops = out["ops"]
    return True, ops["largest"] > NEAR, f"the op farthest off ends {100 * ops['largest']:.1f} % of the step elsewhere"


def break_plans(names, options, folder):
    """Each plan with right lists and with wrong ones; whether all faults were caught, and no others."""
    results, words = {}, []
    for name in names:
        for fault in ("none", *FAULTS):
            code, said, out, (seconds, _) = run_plan(name, options, folder, f"runtime.fault={fault}")
            place, shows, how = outcome(code, said, out)
            what = out["fault"] if out else ""
            if fault == "none":
                words.append("FALSE ALARM" if shows or code != 0 else "right")
            else:
                words.append(("caught" if shows else "MISSED") if place else "no place")
            results[f"{name}, {fault}"] = {"verdict": words[-1], "what": what, "how": how}
            print(f"{name:28} {fault:17} {words[-1]:12} {what + '; ' if what else ''}{how} ({seconds:.0f} s)", flush=True)
    counts = {word: words.count(word) for word in ("caught", "MISSED", "no place", "right", "FALSE ALARM")}
    print(f"{counts['caught']} of {counts['caught'] + counts['MISSED']} faults caught; {counts['no place']} times there was no place; "
          f"{counts['FALSE ALARM']} of {counts['right'] + counts['FALSE ALARM']} right steps taken for wrong ones")
    return results, counts["MISSED"] + counts["FALSE ALARM"] == 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--only", default="", help="names of plans that contain one of these, separated by commas")
    p.add_argument("--jitter", type=float, default=0)
    p.add_argument("--time-scale", type=float, help="0: chosen by the machine, the default; with --mutants 0.1, where order alone counts")
    p.add_argument("--mutants", action="store_true")
    p.add_argument("--json", default="")
    options = p.parse_args()
    if options.time_scale is None:
        options.time_scale = 0.1 if options.mutants else 0
    words = [word for word in options.only.split(",") if word]
    names = [name for name in PLANS | OTHERS if any(word in name for word in words) or (not words and name in PLANS)]
    with tempfile.TemporaryDirectory() as folder:
        results, good = (break_plans if options.mutants else compare)(names, options, Path(folder))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
