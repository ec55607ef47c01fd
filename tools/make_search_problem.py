#!/usr/bin/env python3
"""Make a synthetic tabulated plan-search problem (format: docs/search.md).

usage: make_search_problem.py OUT.json.gz --graph ppo --devices 128 [--options 10000] [--seed 1] ...

Times and memory follow the usual first-order formulas (FLOPs over peak, weight bytes over memory bandwidth, pipeline
bubbles, optimizer state of 16 bytes per parameter) for a device like an 80-GB A100, with a little noise that is a function
of the seed. They are meant to be hard for a search, not to predict a machine. The same arguments give the same file.
"""
import argparse
import gzip
import json
import random

PEAK_FLOPS = 140e12         # sustained, half precision
MEMORY_BYTES_PER_S = 1.4e12
NODE = 8

# name: [(call, role, kind, depends_on)], roles of size "critic" or "actor" by ROLE_SIZE
GRAPHS = {
    "ppo": [("actor_gen", "actor", "generate", []),
            ("rew_inf", "reward", "infer", ["actor_gen"]),
            ("ref_inf", "ref", "infer", ["actor_gen"]),
            ("critic_inf", "critic", "infer", ["actor_gen"]),
            ("actor_train", "actor", "train_step", ["actor_gen", "rew_inf", "ref_inf", "critic_inf"]),
            ("critic_train", "critic", "train_step", ["actor_gen", "rew_inf", "ref_inf", "critic_inf"])],
    # only what each train call reads: no barrier between inference and training
    "ppo_loose": [("actor_gen", "actor", "generate", []),
                  ("rew_inf", "reward", "infer", ["actor_gen"]),
                  ("ref_inf", "ref", "infer", ["actor_gen"]),
                  ("critic_inf", "critic", "infer", ["actor_gen"]),
                  ("actor_train", "actor", "train_step", ["rew_inf", "ref_inf", "critic_inf"]),
                  ("critic_train", "critic", "train_step", ["rew_inf", "critic_inf"])],
    "grpo": [("actor_gen", "actor", "generate", []),
             ("rew_inf", "reward", "infer", ["actor_gen"]),
             ("ref_inf", "ref", "infer", ["actor_gen"]),
             ("actor_train", "actor", "train_step", ["rew_inf", "ref_inf"])],
    "remax": [("actor_gen", "actor", "generate", []),
              ("greedy_gen", "actor", "generate", []),
              ("rew_inf", "reward", "infer", ["actor_gen"]),
              ("greedy_rew_inf", "reward", "infer", ["greedy_gen"]),
              ("ref_inf", "ref", "infer", ["actor_gen"]),
              ("actor_train", "actor", "train_step", ["rew_inf", "greedy_rew_inf", "ref_inf"])],
    "dpo": [("ref_inf", "ref", "infer", []),
            ("actor_train", "actor", "train_step", ["ref_inf"])],
    # PPO with a cost model and its critic (constrained RLHF)
    "safe": [("actor_gen", "actor", "generate", []),
             ("rew_inf", "reward", "infer", ["actor_gen"]),
             ("cost_inf", "cost", "infer", ["actor_gen"]),
             ("ref_inf", "ref", "infer", ["actor_gen"]),
             ("critic_inf", "critic", "infer", ["actor_gen"]),
             ("cost_critic_inf", "cost_critic", "infer", ["actor_gen"])] +
            [(f"{role}_train", role, "train_step",
              ["rew_inf", "cost_inf", "ref_inf", "critic_inf", "cost_critic_inf"])
             for role in ("actor", "critic", "cost_critic")],
}
# everything after everything
GRAPHS["chain"] = [("actor_gen", "actor", "generate", []),
                   ("rew_inf", "reward", "infer", ["actor_gen"]),
                   ("ref_inf", "ref", "infer", ["rew_inf"]),
                   ("critic_inf", "critic", "infer", ["ref_inf"]),
                   ("critic_train", "critic", "train_step", ["critic_inf"]),
                   ("actor_train", "actor", "train_step", ["critic_inf"])]
# two judges read what two rewards wrote
GRAPHS["diamond"] = [("actor_gen", "actor", "generate", []),
                     ("rew_inf", "reward", "infer", ["actor_gen"]),
                     ("cost_inf", "cost", "infer", ["actor_gen"]),
                     ("judge_inf", "judge", "infer", ["rew_inf", "cost_inf"]),
                     ("ref_inf", "ref", "infer", ["rew_inf"]),
                     ("actor_train", "actor", "train_step", ["judge_inf", "ref_inf"])]
# no barrier anywhere: every call waits for some of those before it
GRAPHS["tangle"] = [("actor_gen", "actor", "generate", []),
                    ("greedy_gen", "actor", "generate", []),
                    ("rew_inf", "reward", "infer", ["actor_gen", "greedy_gen"]),
                    ("ref_inf", "ref", "infer", ["actor_gen"]),
                    ("critic_inf", "critic", "infer", ["greedy_gen"]),
                    ("judge_inf", "judge", "infer", ["ref_inf"]),
                    ("critic_train", "critic", "train_step", ["critic_inf", "rew_inf"]),
                    ("actor_train", "actor", "train_step", ["judge_inf", "rew_inf"])]
BIG_ROLES = ("actor", "ref")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--graph", choices=sorted(GRAPHS), default="ppo")
    parser.add_argument("--devices", type=int, default=16, help="a power of two below 8, or a multiple of 8")
    parser.add_argument("--actor-size", type=float, default=7, help="billions of parameters of actor and ref")
    parser.add_argument("--critic-size", type=float, default=7, help="of all other models")
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=384)
    parser.add_argument("--smallest-mesh", type=int, default=4, help="devices of the smallest mesh, 1 to 8")
    parser.add_argument("--options", type=int, default=0,
                        help="options per call: adds variants with other micro-batches until there are so many")
    parser.add_argument("--memory-gib", type=int, default=80, help="of a device")
    parser.add_argument("--noise", type=float, default=0.03, help="relative spread of the times")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def meshes(devices, smallest):
    """Aligned parts of a node, and contiguous runs of whole nodes."""
    size = smallest
    while size < min(NODE, devices):
        yield from ((first, size) for first in range(0, devices, size))
        size *= 2
    nodes = max(1, devices // NODE)
    node = min(NODE, devices)
    for count in range(1, nodes + 1):
        yield from ((first * node, count * node) for first in range(nodes - count + 1))


def layouts(devices):
    for tp in (1, 2, 4, 8):
        for pp in range(1, devices // tp + 1):
            if devices % (tp * pp) == 0 and pp <= 16:
                yield pp, tp, devices // (tp * pp)


def estimate(args, size, kind, layout, micro_batches):
    """(seconds, static bytes, peak bytes) of one call, without noise."""
    pp, tp, dp = layout
    devices = pp * tp * dp
    params = size * 1e9
    tokens = args.prompts * (args.prompt_tokens + args.new_tokens)
    efficiency = {1: 1.0, 2: 0.93, 4: 0.85, 8: 0.72}[tp]
    bubble = (pp + micro_batches - 1) / micro_batches
    shard = 2 * params / (pp * tp)
    activations = 60.0 * tokens / (dp * micro_batches) * (params / 1e9) ** 0.5 * 256 / tp / pp ** 0.5
    if kind == "train_step":
        seconds = 8 * params * tokens / (devices * PEAK_FLOPS * efficiency) * bubble + 0.08 * (dp > 1)
        static = 2 * shard + 12 * params / devices
        return seconds, static, static + activations
    if kind == "infer":
        seconds = 2 * params * tokens / (devices * PEAK_FLOPS * efficiency) * bubble + 0.02
        return seconds, shard, shard + activations / 4
    batch = args.prompts / dp
    step = max(2 * params / tp / MEMORY_BYTES_PER_S, 2 * params * batch / (tp * PEAK_FLOPS * efficiency)) + 3e-3 * (tp > 1)
    prefill = 2 * params * args.prompts * args.prompt_tokens / (devices * PEAK_FLOPS * efficiency) * bubble
    cache = 1.2e5 * (params / 7e9) ** 0.6 * batch * (args.prompt_tokens + args.new_tokens) / (tp * pp)
    return prefill + step * args.new_tokens * (1 + 0.05 * (micro_batches - 1)), shard, shard + cache / micro_batches


def make_options(args, rng, size, kind, offloaded):
    """All meshes and layouts with one micro-batch count, then further counts until there are enough."""
    found = []
    count = 1
    noise = {}
    while not found or (len(found) < args.options and count <= 256):
        added = 0
        for first, devices in meshes(args.devices, args.smallest_mesh):
            for layout in layouts(devices):
                micro_batches = count * (2 * layout[0] if kind == "train_step" else layout[0])
                if args.prompts < layout[2] * micro_batches:
                    continue
                seconds, static, peak = estimate(args, size, kind, layout, micro_batches)
                if peak > args.memory_gib << 30:
                    continue
                key = (layout, micro_batches)
                noise.setdefault(key, 1 + args.noise * rng.random())
                found.append({"first_device": first, "num_devices": devices, "pp": layout[0], "tp": layout[1],
                              "dp": layout[2], "time_us": int(seconds * noise[key] * 1e6), "peak_bytes": int(peak),
                              "static_bytes": 0 if offloaded else int(static)})
                added += 1
        count += 1
        if count > 64 and added == 0:
            break
    return found[:args.options] if args.options else found


def make_moves(args, rng, sizes):
    every = sorted({layout for _, devices in meshes(args.devices, args.smallest_mesh) for layout in layouts(devices)})
    rows = []
    for size in sizes:
        for src in every:
            for dst in every:
                if src[2] > 8 or dst[2] > 8:
                    continue
                share = 2e9 * size / (dst[0] * dst[1])
                distance = sum(a != b for a, b in zip(src, dst))
                seconds = share / 25e9 * (0.4 + 0.3 * distance) * (1 + args.noise * rng.random())
                rows.append({"model_size": size, "src": src, "dst": dst, "time_us": int(seconds * 1e6)})
    return rows


def main():
    args = arguments()
    rng = random.Random(args.seed)
    calls = []
    trained = {role for _, role, kind, _ in GRAPHS[args.graph] if kind == "train_step"}
    for name, role, kind, depends_on in GRAPHS[args.graph]:
        size = args.actor_size if role in BIG_ROLES else args.critic_size
        options = make_options(args, rng, size, kind, offloaded=role not in trained)
        calls.append({"name": name, "role": role, "kind": kind, "model_size": size, "depends_on": depends_on,
                      "options": options})
    problem = {"name": args.out.split("/")[-1].split(".")[0], "num_devices": args.devices,
               "device_memory_bytes": args.memory_gib << 30, "iterations": 5, "calls": calls,
               "realloc_us": make_moves(args, rng, sorted({args.actor_size, args.critic_size}))}
    opener = gzip.open if args.out.endswith(".gz") else open
    with opener(args.out, "wt") as file:
        json.dump(problem, file)


if __name__ == "__main__":
    main()
