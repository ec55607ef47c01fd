#!/usr/bin/env python3
"""Writes tests/data/algorithms.json: advantages, loss and gradient of one step of every algorithm without a critic, computed here in float64
from padded arrays [samples, tokens] and masks, as other frameworks hold them, and not from packed ones. Gradients with respect to the
log-probs are complex-step derivatives (no cancellation). Needs numpy. Usage: make_algorithm_goldens.py"""
import json
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "algorithms.json"
LENGTHS = [3, 1, 5, 2, 4, 4]
GROUPS = [0, 0, 1, 1, 1, 0]  # not side by side
LONGEST = 6  # rollout.max_response_length
REWARDS = [1.0, -0.5, 2.0, 0.25, 0.75, 0.5]

# The options that a name stands for, and a penalty where it has none by itself, so that every term is seen.
GRPO = {"normalize": "group", "kl": 0.05, "estimator": "k3", "kl_in": "loss", "low": 0.2, "high": 0.2, "agg": "token_mean"}
RETURNS = {"normalize": "none", "kl": 0.05, "estimator": "k1", "kl_in": "reward", "low": 0.2, "high": 0.2, "agg": "token_mean", "gamma": 0.9}
ALGORITHMS = {
    "grpo": GRPO,
    "dapo": {**GRPO, "high": 0.28},
    "dr_grpo": {**GRPO, "normalize": "none", "agg": "constant_norm"},
    "gspo": {**GRPO, "low": 3e-4, "high": 4e-4, "agg": "seq_mean_token_mean", "level": "sequence"},
    "cispo": {**GRPO, "low": 0.1, "high": 0.2, "loss": "cispo", "stated_clip": True},  # no ratio here reaches its defaults
    "rloo": {**RETURNS, "advantages": "rloo", "gamma": 1},
    "reinforce": {**RETURNS, "advantages": "returns"},
    "reinforce_plus_plus": {**RETURNS, "advantages": "returns", "normalize": "batch"},
    "reinforce_plus_plus_baseline": {**RETURNS, "advantages": "returns", "centre": True, "normalize": "batch", "estimator": "k2", "kl_in": "loss"},
}


def padded(rng, low, high):
    """[samples, tokens], zero behind a response's end."""
    return rng.uniform(low, high, (len(LENGTHS), max(LENGTHS))) * mask()


def mask():
    return (np.arange(max(LENGTHS))[None, :] < np.array(LENGTHS)[:, None]).astype(np.float64)


def kl(estimator, logp, ref):
    d = logp - ref
    return {"k1": d, "k2": d * d / 2, "k3": np.exp(-d) - 1 + d}[estimator]


def group_mean(values, i):
    return np.mean([values[j] for j in range(len(GROUPS)) if GROUPS[j] == GROUPS[i]])


def group_std(values, i):
    return np.std([values[j] for j in range(len(GROUPS)) if GROUPS[j] == GROUPS[i]], ddof=1)


def whitened(values):
    kept = values[mask() > 0]
    return (values - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8) * mask()


def rewards_of_tokens(o, scores, old, ref):
    out = np.zeros_like(old)
    for i, length in enumerate(LENGTHS):
        out[i, length - 1] = scores[i]
    return out - (o["kl"] * kl(o["estimator"], old, ref) * mask() if o["kl_in"] == "reward" else 0)


def advantages_of(o, old, ref):
    scores = np.array(REWARDS)
    kind = o.get("advantages", "group")
    if kind == "group":
        spread = [group_std(scores, i) + 1e-4 if o["normalize"] == "group" else 1 for i in range(len(scores))]
        return np.array([(scores[i] - group_mean(scores, i)) / spread[i] for i in range(len(scores))])[:, None] * mask()
    if o.get("centre"):
        scores = scores - np.array([group_mean(scores, i) for i in range(len(scores))])
    rewards = rewards_of_tokens(o, scores, old, ref)
    if kind == "rloo":
        totals = rewards.sum(1)
        others = [np.mean([totals[j] for j in range(len(totals)) if GROUPS[j] == GROUPS[i] and j != i]) for i in range(len(totals))]
        return (totals - others)[:, None] * mask()
    out, later = np.zeros_like(rewards), np.zeros(len(scores))
    for t in reversed(range(rewards.shape[1])):
        later = rewards[:, t] + o["gamma"] * later
        out[:, t] = later
    out = out * mask()
    return whitened(out) if o["normalize"] == "batch" else out


def clipped(values, low, high):
    """Of complex numbers, by their real parts."""
    return np.where(values.real < low, low, np.where(values.real > high, high, values))


def loss_of(o, new, old, ref, advantages):
    m = mask()
    log_ratio = (new - old) * m
    if o.get("level") == "sequence":
        log_ratio = (log_ratio.sum(1) / m.sum(1))[:, None] * m
    ratio = np.exp(log_ratio)
    bounded = clipped(ratio, 1 - o["low"], 1 + o["high"])
    if o.get("loss") == "cispo":
        gains = bounded.real * advantages * new
    else:
        one, other = ratio * advantages, bounded * advantages
        gains = np.where(one.real < other.real, one, other)
    losses = -gains * m
    if o["kl_in"] == "loss":
        losses = losses + o["kl"] * kl(o["estimator"], new, ref) * m
    if o["agg"] == "token_mean":
        return losses.sum() / m.sum()
    if o["agg"] == "seq_mean_token_mean":
        return (losses.sum(1) / m.sum(1)).mean()
    return losses.sum() / (len(LENGTHS) * LONGEST)


def packed(values):
    return [float(values[i, t]) for i, length in enumerate(LENGTHS) for t in range(length)]


def main():
    rng = np.random.default_rng(11)
    old = padded(rng, -2.5, -0.5)
    new, ref = old + padded(rng, -0.6, 0.6), old + padded(rng, -0.5, 0.5)
    cases = {}
    for name, o in ALGORITHMS.items():
        advantages = advantages_of(o, old, ref)
        gradient = np.zeros_like(old)
        for place in zip(*np.nonzero(mask())):
            moved = new.astype(complex)
            moved[place] += 1e-30j
            gradient[place] = loss_of(o, moved, old, ref, advantages).imag / 1e-30
        cases[name] = {"kl_coef": o["kl"], "gamma": o.get("gamma", 1), **({"clip_low": o["low"], "clip_high": o["high"]} if o.get("stated_clip") else {}), "advantages": packed(advantages),
                       "loss": float(loss_of(o, new.astype(complex), old, ref, advantages).real), "gradient": packed(gradient)}
    batch = {"lengths": LENGTHS, "groups": GROUPS, "max_response_length": LONGEST, "rewards": REWARDS,
             "old_logprobs": packed(old), "ref_logprobs": packed(ref), "logprobs": packed(new)}
    OUT.write_text(json.dumps({"batch": batch, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
