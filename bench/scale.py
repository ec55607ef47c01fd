#!/usr/bin/env python3
"""What a rank takes as the job grows: emulated jobs of 8, 16 and 32 ranks, each with the same work for a rank.

  python3 bench/scale.py [--ranks 8,16,32,128] [--braid build/braid] [--json out.json]
  python3 bench/scale.py --rows [--ranks 2,4,8]
  python3 bench/scale.py --opens [--ranks 2,4,12]
  python3 bench/scale.py --fields [--ranks 8,16,32]

The plan is tp 2, pp 2 and dp = ranks / 4 in every call, the batch grows with the ranks. Every rank is a process of this
machine (docs/emulation.md). Printed for a rank, in the mean and the most over all ranks: calls of c10d, those of
them in rounds of generation, of which those that are alike are emulated as one, and the calls of a rank that executes each
round, as real ones do; those of the calls that are messages (sends and receives; the others are collectives), bytes that it
gave to them and bytes that it received from them (stand-ins, not tensors), and requests to the store, all of one step; open files, ranks that it is connected to by
wires (docs/ranks.md), memory and processor time at its end; how long the job took, its one step, and the start: all that
is not the step, the end too. Below: how much the most and the mean of each number grow from the smallest job
to the one that has the largest.

Goals: calls (as emulated, and of a rank that executes each round), bytes given, bytes received and requests equal within 5 %; files at most 64 and 4 for each
neighbour; memory at most 1.2 times; start at most 90 s (of 128 ranks on two cores). Exit code 1 where one is not met.
Processor time is shown beside what it was when groups of many ranks were meshes.

With --rows: rows of the data that a rank reads and tokenizes in a step, in jobs of real ranks (emulated ones read none) of a tiny
model with dp = ranks and eight prompts for each rank.

With --opens: open files, sockets among them and threads of the processes of real ranks, of that model, in the middle of a run: the
fewest and the most of a rank (the table of docs/ranks.md).

With --fields: kilobytes of other ranks' results (scores, log-probs, values, advantages) that a rank receives in a step of PPO, as
'braid simulate' moves them (real and emulated ranks send the same): where each rank computes the advantages that it learns from,
and where one rank computes those of all (algorithm.whiten_rewards).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEYS = ["algorithm.name=grpo", "model.size=qwen2.5-7b", "model.dtype=bf16", "reward=[{type: rule, rule: numeric}]",
        "rollout.samples_per_prompt=8", "train.minibatches=2", "data.max_prompt_length=256", "rollout.max_response_length=512",
        "workload.prompt_length=128", "workload.response_length={mean: 300, sigma: 0.5, longest: 512}", "device=emulated"]
# Label, key of emulated.json, and what one unit of the printed number is.
COLUMNS = [("calls", "calls", 1), ("in rounds", "round_calls", 1), ("of each", "calls_of_each", 1), ("messages", "messages", 1), ("given kB", "given_bytes", 1e3), ("received kB", "received_bytes", 1e3), ("requests", "store_requests", 1), ("files", "open_files", 1), ("wires", "wired_to", 1),
           ("memory MB", "peak_bytes", 1e6), ("cpu s", "cpu_s", 1)]
START_S = 90  # goal
CPU_OF_MESHES = {8: 0.67, 16: 0.90, 32: 1.43}  # seconds of a rank, by ranks of the job
NEIGHBOURS = 2 + 1 + 1 + 1  # of a rank: two in its ring of dp, one each by tp and pp, and rank 0


def plan(ranks, algorithm="grpo"):
    layout = f"mesh: all, dp: {ranks // 4}, tp: 2, pp: 2"
    calls = {"generate": layout, "old_logprob": layout, "ref_logprob": layout, "update_actor": layout + ", micro_batches: 4"}
    if algorithm == "ppo":
        calls |= {"values": layout, "update_critic": layout + ", micro_batches: 4"}
    lines = [f"graph: {algorithm}", f"devices: {ranks // 8}x8", "calls:", *(f"  {name}: {{{fields}}}" for name, fields in calls.items())]
    return "\n".join(lines) + "\n"


def run(ranks, options, folder):
    file = folder / f"{ranks}.plan.yaml"
    file.write_text(plan(ranks))
    command = [options.braid, "train", *KEYS, f"cluster={{gpu: h100-80g, nodes: {ranks // 8}}}", f"rollout.prompts_per_step={4 * ranks}",
               f"plan.file={file}", f"run.dir={folder}", f"run.name=of-{ranks}", "runtime.join_s=600"]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(f"{ranks} ranks: {done.stderr[-2000:]}")
    out = json.loads((folder / f"of-{ranks}" / "emulated.json").read_text())
    return {**out["ranks"], "seconds": time.monotonic() - begin, "step_s": out["time_scale"] * out["step"]["emulated_s"],
            "apart": out["step"]["emulated_s"] / out["step"]["predicted_s"] - 1}


def start_of(r):
    return r["seconds"] - r["step_s"]


def row(ranks, r):
    cells = "".join(f"{r[key]['mean'] / unit:12.5g}{r[key]['most'] / unit:10.5g}" for _, key, unit in COLUMNS)
    print(f"{ranks:>5}{cells}{r['seconds']:8.0f}{r['step_s']:8.1f}{start_of(r):9.1f}{100 * r['apart']:8.1f}%", flush=True)


def rows_read(algorithm, ranks, options, folder):
    """Of the last of three steps: rows by rank."""
    name = f"{algorithm}-{ranks}"
    command = [options.braid, "train", "examples/algorithms/toy.yaml", f"algorithm.name={algorithm}", f"parallel={{dp: {ranks}}}",
               f"rollout.prompts_per_step={8 * ranks}", "train.total_steps=3", "train.threads=1", f"run.dir={folder}", f"run.name={name}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(f"{algorithm}, {ranks} ranks: {done.stderr[-2000:]}")
    last = (folder / name / "ranks.jsonl").read_text().splitlines()[-1]
    return [rank["records_read"] for rank in json.loads(last)["ranks"]]


def print_rows(options, folder):
    print(f"{'algorithm':>9}{'ranks':>6}{'prompts':>8}{'rank 0':>8}{'others':>8}{'most':>6}")
    for algorithm in ("sft", "dpo", "grpo"):
        for ranks in [int(word) for word in options.ranks.split(",")]:
            first, *others = rows_read(algorithm, ranks, options, folder)
            print(f"{algorithm:>9}{ranks:>6}{8 * ranks:>8}{first:>8}{sum(others) / len(others):>8.4g}{max(others):>6}", flush=True)


def children(process):
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def opened_by(process):
    files = [os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()]
    return len(files), sum(file.startswith("socket:") for file in files), len(list(Path(f"/proc/{process}/task").iterdir()))


def opens(ranks, options, folder):
    """Files, sockets and threads of each rank after twenty of many steps: connections are made when they are needed."""
    command = [options.braid, "train", "examples/algorithms/toy.yaml", "algorithm.name=grpo", "train.threads=1", f"parallel={{dp: {ranks}}}",
               f"rollout.prompts_per_step={2 * ranks}", "train.total_steps=100000", f"run.dir={folder}", f"run.name=opens-{ranks}"]
    metrics = folder / f"opens-{ranks}" / "metrics.jsonl"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 20):
            time.sleep(0.05)
        out = [opened_by(rank) for rank in children(job.pid)]
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
        said = job.stderr.read()
    if len(out) != ranks:
        sys.exit(f"{ranks} ranks: {said[-2000:]}")
    return out


def print_opens(options, folder):
    print("| ranks | open files | sockets among them | threads |\n|---|---|---|---|")
    for ranks in [int(word) for word in options.ranks.split(",")]:
        columns = zip(*opens(ranks, options, folder))
        cells = [f"{min(column)}" if min(column) == max(column) else f"{min(column)} to {max(column)}" for column in columns]
        print(f"| {ranks} | {' | '.join(cells)} |", flush=True)


def received(ranks, whitened, options, folder):
    """Bytes by rank, of exchanges."""
    file, trace = folder / f"{ranks}.plan.yaml", folder / "trace.json"
    file.write_text(plan(ranks, "ppo"))
    command = [options.braid, "simulate", *(key for key in KEYS if not key.startswith(("algorithm.name", "device", "rollout.samples"))),
               "algorithm.name=ppo", f"algorithm.whiten_rewards={str(whitened).lower()}", f"cluster={{gpu: h100-80g, nodes: {ranks // 8}}}",
               f"rollout.prompts_per_step={16 * ranks}", f"plan.file={file}", "--trace", str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(f"{ranks} ranks: {done.stderr[-2000:]}")
    out = [0] * ranks
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("cat") == "exchange":
            out[event["pid"]] += event["args"].get("bytes", 0)
    return out


def print_fields(options, folder):
    print(f"{'computed by':>14}{'ranks':>6}{'mean kB':>9}{'most kB':>9}")
    for whitened in (False, True):
        for ranks in [int(word) for word in options.ranks.split(",")]:
            by_rank = received(ranks, whitened, options, folder)
            mean, most = sum(by_rank) / ranks / 1e3, max(by_rank) / 1e3
            print(f"{'one rank' if whitened else 'who learns':>14}{ranks:>6}{mean:>9.1f}{most:>9.1f}", flush=True)


def grown(results, key, which):
    """A number (its mean, or the most) of the smallest size, that of the other size that has the largest, and which size that is."""
    smallest, *others = sorted(results)
    largest = max(others, key=lambda ranks: results[ranks][key][which], default=smallest)
    return results[smallest][key][which], results[largest][key][which], largest


def times(before, after):
    return after / before if before > 0 else (1.0 if after == 0 else float("inf"))


def goals(results):
    """Whether all are met, each said: by the most and the mean of all ranks, of every size."""
    equal, files = ("1.05", lambda growth, _: growth <= 1.05), 64 + 4 * NEIGHBOURS
    stated = {"calls": equal, "of each": equal, "given kB": equal, "received kB": equal, "requests": equal, "files": (f"at most {files}", lambda _, most: most <= files),
              "memory MB": ("1.2", lambda growth, _: growth <= 1.2)}
    good = True
    for label, key, unit in COLUMNS:
        of = [(which, *grown(results, key, which)) for which in ("most", "mean")]
        if all(before == after == 0 for _, before, after, _ in of):
            print(f"{label}: none" + (" in a step" if key == "store_requests" else ""))
            continue
        goal, is_met = stated.get(label, (None, None))
        met = is_met is None or all(is_met(times(before, after), after) for _, before, after, _ in of)
        said = [f"{which} {before / unit:.5g} at {min(results)} ranks, {after / unit:.5g} at {at}"
                + (f", {times(before, after):.4g} times" if before > 0 else "") for which, before, after, at in of]
        print(f"{label}: {'; '.join(said)} ({'no goal' if goal is None else f'goal: {goal}, ' + ('met' if met else 'NOT met')})")
        good = good and met
    for ranks, was in CPU_OF_MESHES.items():
        if ranks in results:
            print(f"cpu s of {ranks} ranks: {results[ranks]['cpu_s']['mean']:.2f} in the mean, {was:.2f} as meshes")
    start = start_of(results[max(results)])
    print(f"start s of {max(results)} ranks: {start:.1f} (goal: at most {START_S}, {'met' if start <= START_S else 'NOT met'})")
    return good and start <= START_S


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--ranks", default="", help="multiples of 8, at most 128; default 8,16,32")
    p.add_argument("--rows", action="store_true", help="rows of the data that a rank reads, of real ranks (2,4,8)")
    p.add_argument("--opens", action="store_true", help="files, sockets and threads of real ranks (2,4,12)")
    p.add_argument("--fields", action="store_true", help="kilobytes of other ranks' results that a rank receives (8,16,32)")
    p.add_argument("--json", default="")
    options = p.parse_args()
    options.ranks = options.ranks or ("2,4,8" if options.rows else "2,4,12" if options.opens else "8,16,32")
    table = print_rows if options.rows else print_opens if options.opens else print_fields if options.fields else None
    if table:
        with tempfile.TemporaryDirectory() as folder:
            table(options, Path(folder))
        return
    print(f"{'ranks':>5}" + "".join(f"{label:>12}{'most':>10}" for label, _, _ in COLUMNS) + f"{'job s':>8}{'step s':>8}{'start s':>9}{'apart':>9}")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for ranks in [int(word) for word in options.ranks.split(",")]:
            results[ranks] = run(ranks, options, Path(folder))
            row(ranks, results[ranks])
    good = goals(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
