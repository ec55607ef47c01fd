#!/usr/bin/env python3
"""What the simulator predicts of plans beside what training measures of them, on this machine.

  python3 bench/predicted.py [--ranks 1,2,4] [--algorithms grpo,ppo] [--rounds 2] [--json out.json]

For each number of ranks: `braid profile --ranks N` of the model, then real runs of several plans, each a `braid train`
with `plan.file` and `cluster.profile`. Random weights, prompts of different lengths, responses of --response tokens. A
run writes RUN/predicted.json (medians over the steps after the first); of several rounds the medians count. Errors
are |predicted - measured| / measured: of calls that take at least 2 % of the step, of steps, and of bytes per rank. "pairs in order" counts,
over all pairs of plans of the same work whose measured steps differ by more than 10 %, those that the prediction puts
the right way round.
"""

import argparse
import itertools
import json
import shutil
import statistics
from pathlib import Path

from runs import ROOT, run, training_keys, write_model, write_prompts

GOALS = {"calls": 15.0, "steps": 15.0, "bytes": 10.0}  # mean errors, percent
INFER = {"grpo": ["old_logprob", "ref_logprob"], "ppo": ["old_logprob", "ref_logprob", "values"]}
TRAIN = {"grpo": ["update_actor"], "ppo": ["update_actor", "update_critic"]}
# Name of a plan -> layouts of generation, inference and training.
PLANS = {
    1: {"one": ("dp: 1", "dp: 1", "dp: 1"),
        "one, recompute": ("dp: 1", "dp: 1", "dp: 1, recompute: full"),
        "one, 8 micro-batches": ("dp: 1", "dp: 1", "dp: 1, micro_batches: 8")},
    2: {"dp": ("dp: 2", "dp: 2", "dp: 2"),
        "dp, zero 1": ("dp: 2", "dp: 2", "dp: 2, zero: 1"),
        "tp": ("tp: 2", "tp: 2", "tp: 2"),
        "dp, train tp": ("dp: 2", "dp: 2", "tp: 2"),
        "dp, train pp": ("dp: 2", "dp: 2", "pp: 2, micro_batches: 4")},
    4: {"dp": ("dp: 4", "dp: 4", "dp: 4"),
        "dp, train dp 2 x pp 2": ("dp: 4", "dp: 4", "dp: 2, pp: 2, micro_batches: 2"),
        "dp, train dp 2 x tp 2": ("dp: 4", "dp: 4", "dp: 2, tp: 2"),
        "dp, train pp": ("dp: 4", "dp: 4", "pp: 4, micro_batches: 8")},
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", default="1,2,4")
    p.add_argument("--algorithms", default="grpo,ppo")
    p.add_argument("--plans", default="", help="only plans whose names contain this")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--steps", type=int, default=4, help="steps of a run; the first does not count")
    p.add_argument("--hidden", type=int, default=384)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--prompts", type=int, default=8)
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--prompt", type=int, default=96, help="tokens of the longest prompt; the shortest has half")
    p.add_argument("--response", type=int, default=128)
    p.add_argument("--keep-profiles", action="store_true", help="use profiles of an earlier run")
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--work", default="build/bench-predicted")
    p.add_argument("--json", default="")
    return p.parse_args()


class Bench:
    def __init__(self, a):
        self.a = a
        self.work = (ROOT / a.work).resolve()
        write_model(self.work / "model/config.json", hidden_size=a.hidden, num_hidden_layers=a.layers,
                    intermediate_size=a.hidden * 8 // 3 // 16 * 16, vocab_size=8192)
        write_prompts(self.work / "prompts.jsonl", a.prompts * a.steps, a.prompt // 2, a.prompt, 40)

    def profile(self, ranks):
        out = self.work / f"profile{ranks}.json"
        if not (self.a.keep_profiles and out.exists()):
            run([self.a.braid, "profile", self.work / "model", "--out", out, "--ranks", ranks,
                 "--tokens", "32,128,512,2048", "--lengths", "32,128,512", "--batches", "1,4,8,16,32,64",
                 "--contexts", "64,256"])
        return out

    def plan(self, algorithm, ranks, layouts):
        mesh = "all" if ranks > 1 else "0"
        lines = [f"graph: {algorithm}", f"devices: 1x{ranks}", "calls:"]
        lines += [f"  generate: {{mesh: {mesh}, {layouts[0]}}}"]
        lines += [f"  {call}: {{mesh: {mesh}, {layouts[1]}}}" for call in INFER[algorithm]]
        lines += [f"  {call}: {{mesh: {mesh}, {layouts[2]}}}" for call in TRAIN[algorithm]]
        path = self.work / "plan.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def predicted(self, algorithm, ranks, layouts):
        a = self.a
        shutil.rmtree(self.work / "run", ignore_errors=True)
        samples = a.samples if algorithm == "grpo" else 1
        critic = ["optim.critic.lr=1e-5"] if algorithm == "ppo" else []
        common = training_keys(self.work, self.work / "model/config.json", self.work / "prompts.jsonl", prompt=a.prompt,
                               prompts=a.prompts * a.samples // samples, samples=samples, response=a.response)
        run([a.braid, "train", *common, "run.name=run", f"algorithm.name={algorithm}", *critic, "train.minibatches=2",
             f"train.total_steps={a.steps}",
             f"plan.file={self.plan(algorithm, ranks, layouts)}",
             f"cluster={{profile: {self.work / f'profile{ranks}.json'}, nodes: 1, gpus_per_node: {ranks}}}"])
        return json.loads((self.work / "run/predicted.json").read_text())

    def row(self, algorithm, ranks, layouts):
        """Medians over the rounds: (name, predicted, measured) of calls, the step and the ranks' bytes."""
        rounds = [self.predicted(algorithm, ranks, layouts) for _ in range(self.a.rounds)]

        def middle(of):
            return statistics.median(of(r) for r in rounds)

        calls = [(call["call"], middle(lambda r: r["calls"][i]["predicted_s"]),
                  middle(lambda r: r["calls"][i]["measured_s"])) for i, call in enumerate(rounds[0]["calls"])]
        step = [middle(lambda r: r["step"][key]) for key in ("predicted_s", "measured_s")]
        ranks = [[middle(lambda r: r["ranks"][i][key]) for key in ("predicted_bytes", "measured_bytes")]
                 for i in range(len(rounds[0]["ranks"]))]
        return {"calls": [call for call in calls if call[2] >= 0.02 * step[1]], "step": step, "ranks": ranks}


def error(predicted, measured):
    return 100 * (predicted - measured) / measured


def print_row(name, row):
    calls = ", ".join(f"{call} {p:.3g} / {m:.3g} ({error(p, m):+.0f} %)" for call, p, m in row["calls"])
    memory = max(row["ranks"], key=lambda rank: rank[1])
    print(f"| {name} | {row['step'][0]:.3g} / {row['step'][1]:.3g} ({error(*row['step']):+.0f} %) | {calls} | "
          f"{memory[0] / 2**20:.0f} / {memory[1] / 2**20:.0f} ({error(*memory):+.0f} %) |", flush=True)


def order(results):
    """Pairs of plans of one algorithm in the right order, and pairs that differ by more than 10 %."""
    right = pairs = 0
    for algorithm in {name[0] for name in results}:
        steps = [row["step"] for name, row in results.items() if name[0] == algorithm]
        for (p, m), (q, n) in itertools.combinations(steps, 2):
            if max(m, n) > 1.1 * min(m, n):
                pairs += 1
                right += (p < q) == (m < n)
    return right, pairs


def main():
    a = arguments()
    bench, results = Bench(a), {}
    print("| ranks, algorithm, plan | step, s: predicted / measured | calls | MiB of the largest rank |\n|---|---|---|---|")
    for ranks in map(int, a.ranks.split(",")):
        bench.profile(ranks)
        for algorithm, (plan, layouts) in itertools.product(a.algorithms.split(","), PLANS[ranks].items()):
            if a.plans in plan:
                results[algorithm, ranks, plan] = bench.row(algorithm, ranks, layouts)
                print_row(f"{ranks}, {algorithm}, {plan}", results[algorithm, ranks, plan])
    errors = {"calls": [abs(error(p, m)) for row in results.values() for _, p, m in row["calls"]],
              "steps": [abs(error(*row["step"])) for row in results.values()],
              "bytes": [abs(error(*rank)) for row in results.values() for rank in row["ranks"]]}
    print()
    for name, values in errors.items():
        print(f"mean error of {name}: {statistics.mean(values):.1f} % (goal {GOALS[name]:.0f} %), worst {max(values):.0f} %")
    print("pairs in order: {} of {}".format(*order(results)))
    if a.json:
        rows = [{"algorithm": x, "ranks": n, "plan": p, **row} for (x, n, p), row in results.items()]
        Path(a.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
