#!/usr/bin/env python3
"""Checks a schedule of `braid fuse --out` against its problem file, knowing nothing of the program that made it: every op once, on
its node, for its duration, in order; inputs there (with the lag between nodes); one op at a time; the makespan and the peak memory
that it states, and the memory limit. Prints the makespan and the peak; exit code 1 names what is wrong.
Usage: check_fused.py PROBLEM.json SCHEDULE.json [--split-backward] [--memory-limit X]"""
import argparse
import json
import sys
from fractions import Fraction

TOLERANCE = Fraction(1, 10**6)


def exact(value):
    return Fraction(str(value))


def per_stage(value, stages):
    return [exact(v) for v in (value if isinstance(value, list) else [value] * stages)]


def load_pipelines(problem, split):
    pipelines = []
    for entry in problem["pipelines"]:
        stages = len(entry["stages"])
        times = {"F": per_stage(entry["forward"], stages), "B": per_stage(entry["backward"], stages)}
        if entry.get("weight") is not None:
            times["W"] = per_stage(entry["weight"], stages)
        elif split:
            times["B"] = [t / 2 for t in times["B"]]
            times["W"] = times["B"]
        pipelines.append({"nodes": entry["stages"], "count": entry["micro_batches"], "times": times,
                          "memory": per_stage(entry["memory"], stages)})
    return pipelines


def read_ops(pipelines, schedule):
    """{(pipeline, micro-batch, stage, kind): (start, end)}; node, duration, order and overlap are checked."""
    ops = {}
    for node, listed in enumerate(schedule["nodes"]):
        free = Fraction(0)
        for op in listed:
            key = (op["pipeline"], op["micro_batch"], op["stage"], op["op"])
            pipeline = pipelines[key[0]]
            start, end = exact(op["start"]), exact(op["end"])
            if key in ops:
                raise ValueError(f"{key} runs twice")
            if not 0 <= key[1] < pipeline["count"]:
                raise ValueError(f"{key} is no micro-batch of the problem")
            if pipeline["nodes"][key[2]] != node:
                raise ValueError(f"{key} runs on node {node}")
            if abs(end - start - pipeline["times"][key[3]][key[2]]) > TOLERANCE:
                raise ValueError(f"{key} runs for {float(end - start)}")
            if start < free - TOLERANCE:
                raise ValueError(f"{key} starts at {float(start)}, the node is busy until {float(free)}")
            free = end
            ops[key] = (start, end)
    wanted = sum(len(p["nodes"]) * p["count"] * len(p["times"]) for p in pipelines)
    if len(ops) != wanted:
        raise ValueError(f"{len(ops)} ops instead of {wanted}")
    return ops


def input_of(pipelines, key):
    p, k, s, kind = key
    last = len(pipelines[p]["nodes"]) - 1
    if kind == "F":
        return (p, k, s - 1, "F") if s > 0 else None
    if kind == "B":
        return (p, k, s + 1, "B") if s < last else (p, k, s, "F")
    return (p, k, s, "B")


def check_inputs(pipelines, ops, lag):
    for key, (start, _) in ops.items():
        before = input_of(pipelines, key)
        if before is None:
            continue
        nodes = pipelines[key[0]]["nodes"]
        ready = ops[before][1] + (lag if nodes[before[2]] != nodes[key[2]] else 0)
        if start < ready - TOLERANCE:
            raise ValueError(f"{key} starts at {float(start)}, its input is there at {float(ready)}")


def peak_memory(pipelines, ops, nodes):
    events = [[] for _ in range(nodes)]
    for (p, k, s, kind), (start, end) in ops.items():
        held, node = pipelines[p]["memory"][s], pipelines[p]["nodes"][s]
        if kind == "F":
            events[node].append((start, 1, held))
        if kind == ("W" if "W" in pipelines[p]["times"] else "B"):
            events[node].append((end, 0, -held))
    peak = Fraction(0)
    for listed in events:
        level = Fraction(0)
        for _, _, change in sorted(listed):
            level += change
            peak = max(peak, level)
    return peak


def check(problem, schedule, split, limit):
    pipelines = load_pipelines(problem, split)
    if len(schedule["nodes"]) != problem["nodes"]:
        raise ValueError(f"{len(schedule['nodes'])} nodes instead of {problem['nodes']}")
    ops = read_ops(pipelines, schedule)
    check_inputs(pipelines, ops, exact(problem.get("communication", 0)))
    makespan = max(end for _, end in ops.values())
    peak = peak_memory(pipelines, ops, problem["nodes"])
    if abs(makespan - exact(schedule["makespan"])) > TOLERANCE:
        raise ValueError(f"ends at {float(makespan)}, not at {schedule['makespan']}")
    if abs(peak - exact(schedule["peak_memory"])) > TOLERANCE:
        raise ValueError(f"takes {float(peak)}, not {schedule['peak_memory']}")
    if exact(schedule["lower_bound"]) > makespan + TOLERANCE:
        raise ValueError("is shorter than its lower bound")
    limit = limit if limit is not None else problem.get("memory_limit")
    if limit is not None and peak > exact(limit) + TOLERANCE:
        raise ValueError(f"takes {float(peak)}, more than the limit {limit}")
    return makespan, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("schedule")
    parser.add_argument("--split-backward", action="store_true")
    parser.add_argument("--memory-limit", type=float)
    arguments = parser.parse_args()
    with open(arguments.problem) as problem, open(arguments.schedule) as schedule:
        try:
            makespan, peak = check(json.load(problem), json.load(schedule), arguments.split_backward, arguments.memory_limit)
        except ValueError as error:
            sys.exit(f"{arguments.schedule}: {error}")
    print(f"makespan {float(makespan):g} peak {float(peak):g}")


if __name__ == "__main__":
    main()
