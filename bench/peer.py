#!/usr/bin/env python3
"""Braid beside the peer (the scripts of --peers, which are not part of this repository) on the same weights, prompts and lengths, in one run.

  python3 bench/peer.py --peers DIR --data train.jsonl [--presets tiny,small] [--rounds 3] [--busy] [--json out.json]

For each preset: the bare list of matrix multiplications (build/matmul_list), then Braid and the peer in turn, each a
process of its own: GRPO and PPO steps, sampled and greedy generation, and Braid's small steps in bf16. f32 and two
threads unless said otherwise. The first step (of greedy generation the first batch) of every process is left out; of the
others the median counts. --rounds repeats all of it in turn and prints medians and extremes of the ratios. Peak RSS is
the child's ru_maxrss. --busy runs both again with one other process spinning on the machine. BRAID_PEER_PYTHON
names the interpreter that has the peer's packages (default: python3). With --beside, another build of Braid takes each
step in turn with this one; without "peer" in --parts the peer does not. The results are printed as a table with the
goals beside them, and written as JSON, of which bench/peer_tables.py makes the tables of the pages.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOALS = {  # (measure, preset): goal, "min" or "max"
    ("step / bare products", "tiny"): (1.4, "max"), ("step / bare products", "small"): (1.10, "max"),
    ("sampling, Braid / peer", "tiny"): (2.5, "min"), ("sampling, Braid / peer", "small"): (1.8, "min"),
    ("greedy, Braid / peer", "tiny"): (2.5, "min"), ("greedy, Braid / peer", "small"): (1.8, "min"),
    ("grpo step, peer / Braid", "tiny"): (1.5, "min"), ("grpo step, peer / Braid", "small"): (1.5, "min"),
    ("ppo step, peer / Braid", "tiny"): (1.5, "min"), ("ppo step, peer / Braid", "small"): (1.25, "min"),
    ("grpo bf16 step, peer f32 / Braid", "small"): (1.8, "min"),
    ("grpo peak RSS, Braid / peer", "tiny"): (0.5, "max"), ("grpo peak RSS, Braid / peer", "small"): (0.5, "max"),
    ("ppo peak RSS, Braid / peer", "tiny"): (0.5, "max"), ("ppo peak RSS, Braid / peer", "small"): (0.5, "max"),
    ("grpo step, Braid / --beside", "tiny"): (1.02, "max"), ("grpo step, Braid / --beside", "small"): (1.02, "max"),
    ("ppo step, Braid / --beside", "tiny"): (1.02, "max"), ("ppo step, Braid / --beside", "small"): (1.02, "max"),
    ("busy / quiet, Braid grpo", "tiny"): (3.0, "max"), ("busy / quiet, Braid grpo", "small"): (3.0, "max"),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", required=True, help="folder with the peer's scripts")
    p.add_argument("--data", required=True, help="JSON lines with question and answer")
    p.add_argument("--work", default="build/bench-peer")
    p.add_argument("--presets", default="tiny,small")
    p.add_argument("--parts", default="products,grpo,ppo,generate,bf16,peer")
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--beside", default="", help="another build of Braid, such as of an earlier commit")
    p.add_argument("--products", default="build/matmul_list")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=3, help="timed steps of every process")
    p.add_argument("--rounds", type=int, default=1, help="times that everything runs in turn; ratios are medians")
    p.add_argument("--micro-tokens", type=int, default=1536)
    p.add_argument("--busy", action="store_true")
    p.add_argument("--json", default="")
    return p.parse_args()


def machine_busy_s():
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def run(command, env=None):
    """Output, peak RSS in MiB, and the share of one core that other processes used meanwhile."""
    busy, clock = machine_busy_s(), os.times()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                             env={**os.environ, **(env or {})})
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{text}\nfailed")
    wall = os.times().elapsed - clock.elapsed
    other = max(0.0, machine_busy_s() - busy - usage.ru_utime - usage.ru_stime) / wall
    return text, usage.ru_maxrss / 1024, other


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


class Bench:
    def __init__(self, a, preset):
        self.a, self.preset = a, preset
        self.python = os.environ.get("BRAID_PEER_PYTHON", "python3")
        self.work = (ROOT / a.work / preset).resolve()

    def peer(self, script, *extra):
        text, rss, other = run([self.python, f"{self.a.peers}/{script}", "--data", self.a.data, "--work",
                                str(self.work / "peer"), "--preset", self.preset, "--threads", str(self.a.threads),
                                "--steps", str(self.a.steps + 1), *extra])
        return {**last_json(text), "rss_mib": rss, "other_cores": other}

    def export(self):
        run([self.python, f"{self.a.peers}/trl_ppo_tiny.py", "--data", self.a.data, "--work", str(self.work / "start"),
             "--preset", self.preset, "--prompts", "32", "--steps", str(self.a.steps + 1), "--export-only"])

    def braid(self, algorithm, *extra, program=""):
        start, name = self.work / "start", "run-" + algorithm
        shutil.rmtree(self.work / name, ignore_errors=True)
        ppo = algorithm == "ppo"
        reward = f"[{{type: model, path: {start}/reward}}]" if ppo else "[{type: rule, rule: digit_share}]"
        config = self.work / f"{algorithm}.yaml"
        config.write_text(
            f"run: {{dir: {self.work}, name: {name}}}\n"
            f"model: {{path: {start}/actor}}\n"
            f"data: {{train: {start}/prompts.jsonl, shuffle: false}}\n"
            f"rollout: {{prompts_per_step: {32 if ppo else 8}, samples_per_prompt: {1 if ppo else 4}, "
            "max_response_length: 128, ignore_eos: true}\n"
            f"reward: {reward}\n"
            + (f"critic: {{path: {start}/critic}}\nalgorithm: {{name: ppo, old_logprobs: sampler, kl: {{coef: 0.05}}}}\n" if ppo else
               "algorithm: {name: grpo, old_logprobs: sampler, kl: {coef: 0.04, in: loss, estimator: k3}}\n")
            + "optim: {actor: {lr: 1e-5}, critic: {lr: 1e-5}}\n"
            f"train: {{total_steps: {self.a.steps + 1}, minibatches: {4 if ppo else 1}, threads: {self.a.threads}, "
            f"micro_tokens: {self.a.micro_tokens}}}\n"
            "log: {samples_every: 0, tensorboard: false}\n")
        _, rss, other = run([program or self.a.braid, "train", str(config), *extra])
        rows = [json.loads(x) for x in (self.work / name / "metrics.jsonl").read_text().splitlines()][1:]
        times = {k: statistics.median(r[k] for r in rows) for k in rows[0] if k.startswith("time/")}
        return {"step_s": times["time/step"], "times": times, "rss_mib": rss, "other_cores": other,
                "gen_tokens_per_s": 4096 / times["time/generate"]}

    def greedy_seconds(self, prompts):
        """Seconds of generating for a file of prompts, 32 at a time, and the process's peak RSS and company."""
        text, rss, other = run([self.a.braid, "generate", str(self.work / "start/actor"), "--prompts", str(prompts),
                                "--json", "--max-new-tokens", "128", "--ignore-eos", "--temperature", "0",
                                "--max-concurrent", "32", "--threads", str(self.a.threads)])
        tokens, rate = [int(x) for x in re.search(r"(\d+) new tokens in .*: (\d+) tokens/s", text).groups()]
        assert ", 0 shared," in text, "batches must not share prefixes: the peer computes every prompt"
        return tokens, tokens / rate, rss, other

    def greedy(self):
        """Tokens/s of a batch of 32 that is not the first of its process, as the peer's: four batches less one."""
        rows = [json.loads(x) for x in (self.work / "start/prompts.jsonl").read_text().splitlines()[:32]]
        batch = "".join(json.dumps({"ids": r["prompt_ids"]}) + "\n" for r in rows)
        one, four = self.work / "ids.jsonl", self.work / "ids4.jsonl"
        one.write_text(batch)
        four.write_text(4 * batch)
        rates, first = [], []
        for _ in range(3):
            tokens, start_s, rss, _ = self.greedy_seconds(one)
            more, all_s, _, other = self.greedy_seconds(four)
            first.append(tokens / start_s)
            rates.append((more - tokens) / (all_s - start_s))
        return {"gen_tokens_per_s": statistics.median(rates), "first_tokens_per_s": statistics.median(first),
                "rss_mib": rss, "other_cores": other}

    def measure(self):
        """One round: every program of the comparison once, in turn."""
        out, parts = {}, self.a.parts.split(",")
        for algorithm in ("grpo", "ppo"):
            if "products" in parts:
                out["products_" + algorithm] = last_json(run([self.a.products, algorithm, self.preset, "f32",
                                                              str(self.a.threads)])[0])
            if algorithm in parts:
                out["braid_" + algorithm] = self.braid(algorithm)
                if self.a.beside:
                    out["beside_" + algorithm] = self.braid(algorithm, program=self.a.beside)
                if "peer" in parts:
                    out["peer_" + algorithm] = self.peer(f"trl_{algorithm}_tiny.py")
        if "generate" in parts:
            out["braid_greedy"] = self.greedy()
            out["peer_greedy"] = self.peer("hf_generate_tiny.py", "--prompts", "32")
        if "bf16" in parts and self.preset == "small":
            out["braid_grpo_bf16"] = self.braid("grpo", "model.dtype=bf16")
            out["braid_ppo_bf16"] = self.braid("ppo", "model.dtype=bf16")
        if self.a.busy:
            with Spinner():
                out["busy_braid_grpo"] = self.braid("grpo")
        return out


class Spinner:
    """One other busy process."""

    def __enter__(self):
        self.child = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()


def ratios(out):
    def put(name, above, below):
        if above and below:
            rows[name] = above / below

    rows = {}

    def at(key, field):
        return out.get(key, {}).get(field)

    for algorithm in ("grpo", "ppo"):
        bare = out.get("products_" + algorithm, {}).get("fastest", {}).get("step_s")
        name = "step / bare products" if algorithm == "grpo" else "ppo step / bare products"
        put(name, at("braid_" + algorithm, "step_s"), bare)
        put(f"{algorithm} step, peer / Braid", at("peer_" + algorithm, "step_s"), at("braid_" + algorithm, "step_s"))
        put(f"{algorithm} step, Braid / --beside", at("braid_" + algorithm, "step_s"), at("beside_" + algorithm, "step_s"))
        put(f"{algorithm} peak RSS, Braid / peer", at("braid_" + algorithm, "rss_mib"),
            at("peer_" + algorithm, "rss_mib"))
        put(f"{algorithm} bf16 step, peer f32 / Braid", at("peer_" + algorithm, "step_s"),
            at(f"braid_{algorithm}_bf16", "step_s"))
    put("sampling, Braid / peer", at("braid_grpo", "gen_tokens_per_s"), at("peer_grpo", "gen_tokens_per_s"))
    put("greedy, Braid / peer", at("braid_greedy", "gen_tokens_per_s"), at("peer_greedy", "gen_tokens_per_s"))
    put("greedy, first batch of a process / peer", at("braid_greedy", "first_tokens_per_s"),
        at("peer_greedy", "gen_tokens_per_s"))
    put("busy / quiet, Braid grpo", at("busy_braid_grpo", "step_s"), at("braid_grpo", "step_s"))
    return rows


def seconds_of(row):
    """What sorts the rounds of a program: its time, or where it has only a rate the negative of that."""
    return row["step_s"] if "step_s" in row else row["fastest"]["step_s"] if "fastest" in row else -row["gen_tokens_per_s"]


def merged(rounds):
    """Of every program the round with the median time, and of every ratio the median of those within a round."""
    out = {name: sorted((r[name] for r in rounds), key=seconds_of)[(len(rounds) - 1) // 2] for name in rounds[0]}
    all_ratios = [ratios(r) for r in rounds]
    of_rounds = {name: [r[name] for r in all_ratios] for name in all_ratios[0]}
    return {**out, "rounds": len(rounds), "ratios": {name: statistics.median(values) for name, values in of_rounds.items()},
            "extremes": {name: [min(values), max(values)] for name, values in of_rounds.items()}}


def print_tables(results):
    print("\n| | model | median | rounds | goal | |\n|---|---|---|---|---|---|")
    for out in results:
        for name, value in out["ratios"].items():
            goal = GOALS.get((name, out["preset"]))
            bound = "" if goal is None else ("≤ " if goal[1] == "max" else "≥ ") + str(goal[0])
            met = "" if goal is None else "met" if (value <= goal[0]) == (goal[1] == "max") else "missed"
            spread = " to ".join(f"{value:.2f}" for value in out["extremes"][name])
            print(f"| {name} | {out['preset']} | {value:.2f} | {spread} | {bound} | {met} |")
    print("\n| run | model | s/step | generated tokens/s | peak RSS MiB | other processes, cores |\n|---|---|---|---|---|---|")
    for out in results:
        for name, row in out.items():
            if isinstance(row, dict) and "other_cores" in row:
                step = row.get("step_s")
                print(f"| {name} | {out['preset']} | {'' if step is None else format(step, '.2f')} | "
                      f"{row.get('gen_tokens_per_s', 0):.0f} | {row.get('rss_mib', 0):.0f} | {row['other_cores']:.2f} |")


def main():
    a = arguments()
    results = []
    for preset in a.presets.split(","):
        bench = Bench(a, preset)
        bench.work.mkdir(parents=True, exist_ok=True)
        bench.export()
        results.append({"preset": preset, **merged([bench.measure() for _ in range(a.rounds)])})
        if a.json:
            Path(a.json).write_text(json.dumps(results, indent=1))
    print_tables(results)


if __name__ == "__main__":
    main()
