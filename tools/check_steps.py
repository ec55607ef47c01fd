#!/usr/bin/env python3
"""Holds two whole steps of every algorithm against an independent implementation: transformers' model in float64, the papers' formulas in
PyTorch's autograd, torch.optim.AdamW. Braid starts from exported weights and records its rollouts (preferences are given as token ids); what
is computed here from those samples are the losses of all four updates (two epochs a step, so that ratios leave 1) and the weights at the end.
Nothing of Braid's is used but the samples, their rewards (those of reward models apart, which are computed too) and the configuration. Needs torch, transformers and safetensors.

Usage: check_steps.py BRAID [--out EVIDENCE.json] [--only NAME]
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

ROOT = Path(__file__).resolve().parent.parent
PROMPTS, SAMPLES, STEPS, EPOCHS, LONGEST = 4, 4, 2, 2, 8
LR, BETAS, EPS, DECAY, CLIP = 3e-3, (0.9, 0.99), 1e-3, 0.1, 1.0  # an eps of the size of gradients keeps the first updates from being their signs
WEIGHTS, LOSSES = 1e-4, 1e-5  # largest difference: of the change of the weights, relative; of a loss

# What the papers say, and what docs/algorithms.md lists as the defaults of a name.
GROUPS = {"advantages": "group", "std": True, "kl": 0, "low": 0.2, "high": 0.2, "agg": "token_mean"}
RETURNS = {"advantages": "returns", "kl": 0.05, "estimator": "k1", "kl_in": "reward", "low": 0.2, "high": 0.2, "agg": "token_mean", "gamma": 1.0}
PPO = {**RETURNS, "advantages": "gae", "lam": 0.95, "value_clip": 0.2, "whiten": True}
PAIRS = {"beta": 0.1, "smoothing": 0.0}
ALGORITHMS = {
    "grpo": {**GROUPS, "kl": 0.001, "estimator": "k3", "kl_in": "loss"},
    "grpo-two_reward_models": {**GROUPS, "kl": 0.001, "estimator": "k3", "kl_in": "loss", "reward_weights": [1.0, -0.5]},
    "dapo": {**GROUPS, "high": 0.28, "select": True},
    "dr_grpo": {**GROUPS, "std": False, "agg": "constant"},
    "gspo": {**GROUPS, "low": 3e-4, "high": 4e-4, "agg": "sequence_mean", "sequence": True},
    "cispo": {**GROUPS, "low": 0.1, "high": 0.2, "cispo": True},  # no ratio here would reach its defaults
    "rloo": {**RETURNS, "advantages": "rloo"},
    "reinforce": RETURNS,
    "reinforce_plus_plus": {**RETURNS, "kl": 0.01, "whiten": True},
    "reinforce_plus_plus_baseline": {**RETURNS, "kl": 0.001, "estimator": "k2", "kl_in": "loss", "whiten": True, "centre": True},
    "remax": {**RETURNS, "greedy": True},
    "ppo": PPO,
    "ppo-trunk": {**PPO, "trunk": True},
    "ppo-ema": {**PPO, "ema": 0.9},
    "distill": {**RETURNS, "advantages": "distill", "kl": 1.0, "gamma": 0.0},
    "dpo": {**PAIRS, "loss": "sigmoid"},
    "dpo-cdpo": {**PAIRS, "loss": "sigmoid", "smoothing": 0.1},
    "dpo-ipo": {**PAIRS, "loss": "ipo"},
    "dpo-hinge": {**PAIRS, "loss": "hinge"},
    "dpo-robust": {**PAIRS, "loss": "robust", "smoothing": 0.1},
    "orpo": PAIRS,
    "kto": {**PAIRS, "wanted": 1.0, "unwanted": 1.5},
    "online_dpo": {**PAIRS, "loss": "sigmoid"},
    "sft": {},
    "rm": {"loss": "pairwise"},
    "rm-squared_error": {"loss": "squared_error"},
    "rm-cross_entropy": {"loss": "cross_entropy"},
}
OPTIONS = {"cispo": ["algorithm.clip_low=0.1", "algorithm.clip_high=0.2"], "ppo-trunk": ["critic.shared_trunk=true"],
           "ppo-ema": ["reference.sync_every=1", "reference.ema=0.9"], "rm-squared_error": ["algorithm.reward_loss=squared_error"],
           "rm-cross_entropy": ["algorithm.reward_loss=cross_entropy"],
           "dpo-cdpo": ["algorithm.label_smoothing=0.1"], "dpo-ipo": ["algorithm.preference_loss=ipo"], "dpo-hinge": ["algorithm.preference_loss=hinge"],
           "dpo-robust": ["algorithm.preference_loss=robust", "algorithm.label_smoothing=0.1"], "kto": ["algorithm.unwanted_weight=1.5"]}
METRICS = {"dpo": "dpo/loss", "online_dpo": "dpo/loss", "orpo": "orpo/loss", "kto": "kto/loss", "sft": "sft/loss", "rm": "rm/loss"}


def base(name):
    return name.split("-")[0]


def of_data(name):
    """Whether responses are given."""
    return base(name) in ("dpo", "orpo", "kto", "sft", "rm")


def of_single_responses(name):
    """Of a pair each response is a sample by itself."""
    return name in ("kto", "rm-cross_entropy")


def roles_of(name):
    return ["reward"] if base(name) == "rm" else ["actor"] if base(name) != "ppo" or name == "ppo-trunk" else ["actor", "critic"]


# ---- Braid


def train(braid, folder, run, *options):
    command = [braid, "train", "examples/algorithms/toy.yaml", f"run.dir={folder}", f"run.name={run}", "train.threads=1", "checkpoint.every_steps=0",
               "train.minibatches=1", f"rollout.prompts_per_step={PROMPTS}", f"rollout.samples_per_prompt={SAMPLES}", "data.shuffle=false", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return folder / run


def train_reward_models(braid, folder, start):
    """Two that learnt something else of the same rows."""
    for name, loss in (("judge_1", "pairwise"), ("judge_2", "squared_error")):
        yield train(braid, folder, name, "algorithm.name=rm", f"algorithm.reward_loss={loss}", f"model.path={start}", "model.config=",
                    f"data.train={folder}/pairs.jsonl", "reward=[]", "train.total_steps=10", "optim.reward.lr=1e-2") / "export" / "reward"


def train_named(braid, folder, name, start, teacher, judges):
    options = [f"algorithm.name={base(name)}", f"model.path={start}", "model.config=", f"train.total_steps={STEPS}", f"train.epochs_per_rollout={EPOCHS}",
               *OPTIONS.get(name, [])]
    for role in roles_of(name):
        options += [f"optim.{role}.lr={LR}", f"optim.{role}.betas=[{BETAS[0]}, {BETAS[1]}]", f"optim.{role}.eps={EPS}", f"optim.{role}.weight_decay={DECAY}",
                    f"optim.{role}.max_grad_norm={CLIP}"]
    options += [f"data.train={folder}/pairs.jsonl", "reward=[]"] if of_data(name) else ["rollout.record=true"]
    if "reward_weights" in ALGORITHMS[name]:
        entries = [f"{{type: model, name: judge_{i}, path: {judge}, weight: {weight}}}" for i, (judge, weight) in enumerate(zip(judges, ALGORITHMS[name]["reward_weights"]))]
        options.append(f"reward=[{', '.join(entries)}]")
    return train(braid, folder, name, *options, *([f"teacher.path={teacher}"] if name == "distill" else []))


def write_pairs(folder):
    """Random preferences, as token ids; the chosen response stands there alone too, with a score."""
    draw = random.Random(5)
    ids = lambda length: [draw.randrange(3, 41) for _ in range(length)]
    rows = [{"prompt": ids(draw.randrange(3, 9)), "chosen": ids(draw.randrange(2, 8)), "rejected": ids(draw.randrange(2, 8))} for _ in range(PROMPTS * STEPS)]
    for row in rows:
        row.update(response=row["chosen"], score=draw.uniform(-1, 1))
    Path(folder, "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


# ---- samples of a step: dicts with prompt, response, group and what is known of them


def rollouts(run, step):
    rows = [json.loads(line) for line in Path(run, "rollouts.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["step"] == step]
    greedy = {row["sample"] // SAMPLES: row["rewards"] for row in rows if "responses" in row}
    return [{"prompt": row["prompt_ids"], "response": row["response_ids"], "group": row["sample"] // SAMPLES, "id": row["sample"],
             "reward": row["rewards"], "greedy": greedy.get(row["sample"] // SAMPLES)}
            for row in sorted(rows, key=lambda row: row["sample"]) if "responses" not in row]


def in_groups(samples):
    out = {}
    for sample in samples:
        out.setdefault(sample["group"], []).append(sample)
    return list(out.values())


def pair_samples(name, rows, step):
    """A pair is one of a step's prompts, or two where its responses stand for themselves."""
    pairs = PROMPTS // 2 if of_single_responses(name) else PROMPTS
    out = []
    for group, row in enumerate(rows[pairs * step : pairs * (step + 1)]):
        if name in ("sft", "rm-squared_error"):
            out.append({"prompt": row["prompt"], "response": row["response"], "group": group, "score": row["score"]})
            continue
        out += [{"prompt": row["prompt"], "response": row[side], "group": group, "wanted": side == "chosen"} for side in ("chosen", "rejected")]
    return out


# ---- formulas


def kl(estimator, d):
    return {"k1": lambda: d, "k2": lambda: d * d / 2, "k3": lambda: torch.exp(-d) - 1 + d}[estimator]()


def to_go(rewards, gamma):
    out, later = [], torch.zeros((), dtype=torch.float64)
    for reward in reversed(rewards):
        later = reward + gamma * later
        out.append(later)
    return torch.stack(out[::-1])


def set_estimates(o, s, rewards):
    """Schulman et al., 2016, eq. 16; behind the last token there is nothing."""
    ahead = torch.cat([s["values"][1:], torch.zeros(1, dtype=torch.float64)])
    s["advantages"] = to_go(rewards + o["gamma"] * ahead - s["values"], o["gamma"] * o["lam"])
    s["returns"] = s["advantages"] + s["values"]


def set_advantages(o, samples):
    for group in in_groups(samples):
        rewards = torch.tensor([s["reward"] for s in group], dtype=torch.float64)
        for i, s in enumerate(group):
            tokens = torch.zeros(len(s["response"]), dtype=torch.float64)
            if o["advantages"] == "group":
                s["advantages"] = tokens + (rewards[i] - rewards.mean()) / (rewards.std() + 1e-4 if o["std"] else 1)
                continue
            if o["advantages"] == "distill":
                tokens = o["kl"] * (s["teacher"] - s["old"])
            elif o["kl_in"] == "reward":
                tokens = -o["kl"] * kl(o["estimator"], s["old"] - s["ref"])
            tokens[-1] += rewards[i] - (rewards.mean() if o.get("centre") else 0)
            if o["advantages"] == "gae":
                set_estimates(o, s, tokens)
                continue
            s["total"] = tokens.sum()
            s["advantages"] = to_go(tokens, o["gamma"]) - (s["greedy"] if o.get("greedy") else 0)
        if o["advantages"] == "rloo":
            totals = torch.stack([s["total"] for s in group])
            for i, s in enumerate(group):
                s["advantages"] = torch.zeros(len(s["response"]), dtype=torch.float64) + totals[i] - (totals.sum() - totals[i]) / (len(group) - 1)
    if o.get("whiten"):
        every = torch.cat([s["advantages"] for s in samples])
        for s in samples:
            s["advantages"] = (s["advantages"] - every.mean()) / torch.sqrt(every.var() + 1e-8)


def policy_loss(o, samples, new):
    losses = []
    for s, logp in zip(samples, new):
        log_ratio = logp - s["old"]
        ratio = torch.exp(log_ratio.mean().expand_as(logp) if o.get("sequence") else log_ratio)
        bounded = ratio.clamp(1 - o["low"], 1 + o["high"])
        for bound in (1 - o["low"], 1 + o["high"]):  # a gradient there is one thing or another
            o["nearest"] = min(o.get("nearest", 1), (ratio.detach() - bound).abs().min().item())
        a = s["advantages"]
        loss = -a * bounded.detach() * logp if o.get("cispo") else torch.maximum(-a * ratio, -a * bounded)
        if o["kl"] and o.get("kl_in") == "loss":
            loss = loss + o["kl"] * kl(o["estimator"], logp - s["ref"])
        losses.append(loss)
    if o["agg"] == "sequence_mean":
        return torch.stack([loss.mean() for loss in losses]).mean()
    every = torch.cat(losses)
    return every.sum() / (len(every) if o["agg"] == "token_mean" else len(samples) * LONGEST)


def value_loss(o, samples, new):
    losses = []
    for s, value in zip(samples, new):
        near = s["values"] + (value - s["values"]).clamp(-o["value_clip"], o["value_clip"])
        losses.append(torch.maximum((value - s["returns"]) ** 2, (near - s["returns"]) ** 2) / 2)
    return torch.cat(losses).mean()


def reward_loss(o, samples, scores):
    if o["loss"] == "pairwise":
        return -F.logsigmoid(scores[0::2] - scores[1::2]).mean()
    if o["loss"] == "squared_error":
        return F.mse_loss(scores, torch.tensor([s["score"] for s in samples], dtype=torch.float64))
    return F.binary_cross_entropy_with_logits(scores, torch.tensor([float(s["wanted"]) for s in samples], dtype=torch.float64))


def pair_loss(o, name, chosen, rejected, refs):
    if base(name) == "orpo":
        means = [logp.mean() for logp in (chosen, rejected)]
        odds = [mean - torch.log1p(-torch.exp(mean)) for mean in means]
        return -means[0] - o["beta"] * F.logsigmoid(odds[0] - odds[1])
    over = torch.mean if o["loss"] == "ipo" else torch.sum
    d = over(chosen - refs[0]) - over(rejected - refs[1])
    e = o["smoothing"]
    right, wrong = -F.logsigmoid(o["beta"] * d), -F.logsigmoid(-o["beta"] * d)
    return {"sigmoid": (1 - e) * right + e * wrong, "robust": ((1 - e) * right - e * wrong) / (1 - 2 * e), "hinge": torch.relu(1 - o["beta"] * d),
            "ipo": (d - 1 / (2 * o["beta"])) ** 2}[o["loss"]]


def pairs_of(name, samples):
    """Indices of the better and the worse of each pair."""
    if base(name) != "online_dpo":
        return [(i, i + 1) for i in range(0, len(samples), 2)]
    out = []
    for group in in_groups(samples):
        rewards = [s["reward"] for s in group]
        best, worst = rewards.index(max(rewards)), rewards.index(min(rewards))
        if rewards[best] > rewards[worst]:
            out.append((samples.index(group[best]), samples.index(group[worst])))
    return out


def kto_loss(o, samples, new):
    losses = []
    for s, logp in zip(samples, new):
        gain = (logp - s["ref"]).sum() - s["baseline"]
        sign, weight = (1, o["wanted"]) if s["wanted"] else (-1, o["unwanted"])
        losses.append(weight * (1 - torch.sigmoid(o["beta"] * sign * gain)))
    return torch.stack(losses).mean()


def loss_of(o, name, samples, new):
    if base(name) == "sft":
        return -torch.cat(new).mean()
    if base(name) == "kto":
        return kto_loss(o, samples, new)
    if base(name) in METRICS:
        return torch.stack([pair_loss(o, name, new[a], new[b], (samples[a].get("ref"), samples[b].get("ref"))) for a, b in pairs_of(name, samples)]).mean()
    return policy_loss(o, samples, new)


# ---- the step


def load(folder):
    """A policy that has a scalar head too, which is zero at first; or a reward model."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, local_files_only=True)
    model.get_input_embeddings().padding_idx = None  # a policy may write that token, and its row learns then
    model.score = torch.nn.Linear(model.config.hidden_size, 1, bias=False, dtype=torch.float64)
    kept = load_file(Path(folder, "model.safetensors"))
    with torch.no_grad():
        model.score.weight.copy_(kept["score.weight"].double()) if "score.weight" in kept else model.score.weight.zero_()
    return model


def logprobs(model, prompt, response):
    logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0]


def head_outputs(model, s):
    """Of every token of prompt and response."""
    return model.score(model.model(torch.tensor([s["prompt"] + s["response"]])).last_hidden_state)[0, :, 0]


def values(model, s):
    return head_outputs(model, s)[len(s["prompt"]) - 1 : -1]


def prepare(o, name, samples, models, reference, teacher):
    """What is known of samples before the first update of their step."""
    if base(name) == "rm":
        return
    model = models["actor"]
    with torch.no_grad():
        for s in samples:
            if base(name) == "ppo":
                s["values"] = values(models.get("critic", model), s)
            s["old"] = logprobs(model, s["prompt"], s["response"])
            s["ref"] = logprobs(reference, s["prompt"], s["response"])
            if name == "distill":
                s["teacher"] = logprobs(teacher, s["prompt"], s["response"])
        if base(name) == "kto":
            ratios = []
            for i, s in enumerate(samples):
                back = next(k for k in range(1, len(samples)) if samples[i - k]["prompt"] != s["prompt"])
                other = samples[i - back]["response"]
                ratios.append((logprobs(model, s["prompt"], other) - logprobs(reference, s["prompt"], other)).sum())
            baseline = torch.stack(ratios).mean().clamp_min(0)
            for s in samples:
                s["baseline"] = baseline
    if "advantages" in o:
        set_advantages(o, samples)


def samples_of(o, name, run, pairs, step, judges):
    samples = pair_samples(name, pairs, step) if of_data(name) else rollouts(run, step)
    if o.get("select"):  # the first groups whose rewards differ
        groups = [group for group in in_groups(samples) if len({s["reward"] for s in group}) > 1][:PROMPTS]
        samples = [s for group in groups for s in group]
    for s in samples if judges else []:
        with torch.no_grad():
            s["reward"] = sum(weight * head_outputs(judge, s)[-1].item() for judge, weight in zip(judges, o["reward_weights"]))
    return samples


def losses_of(o, name, samples, models):
    """{role: {metric: loss}}; a role learns from the sum of its losses."""
    if base(name) == "rm":
        return {"reward": {"rm/loss": reward_loss(o, samples, torch.stack([head_outputs(models["reward"], s)[-1] for s in samples]))}}
    of_policy = {METRICS.get(base(name), "policy/loss"): loss_of(o, name, samples, [logprobs(models["actor"], s["prompt"], s["response"]) for s in samples])}
    if base(name) != "ppo":
        return {"actor": of_policy}
    of_critic = {"critic/loss": value_loss(o, samples, [values(models.get("critic", models["actor"]), s) for s in samples])}
    return {"actor": {**of_policy, **of_critic}} if o.get("trunk") else {"actor": of_policy, "critic": of_critic}


def optimizer_of(model):
    spared = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": spared, "weight_decay": 0}], lr=LR, betas=BETAS, eps=EPS)


def update(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()


def follow(reference, model, ema):
    with torch.no_grad():
        for ours, its in zip(reference.parameters(), model.parameters()):
            ours.mul_(ema).add_(its, alpha=1 - ema)


def independent(o, name, run, start, teacher, pairs, judges):
    models, reference = {role: load(start) for role in roles_of(name)}, load(start)
    optimizers = {role: optimizer_of(model) for role, model in models.items()}
    losses = {}  # by metric
    for step in range(STEPS):
        samples = samples_of(o, name, run, pairs, step, judges)
        prepare(o, name, samples, models, reference, teacher)
        for _ in range(EPOCHS):
            for role, parts in losses_of(o, name, samples, models).items():
                update(models[role], optimizers[role], sum(parts.values()))
                for metric, loss in parts.items():
                    losses.setdefault(metric, []).append(loss.item())
        if "ema" in o:
            follow(reference, models["actor"], o["ema"])
    return {role: {key: value.detach() for key, value in model.state_dict().items()} for role, model in models.items()}, losses


def weights_apart(run, role, start, mine):
    """Of the change of a role's weights, relative; its head was zero."""
    begin, end = load_file(Path(start, "model.safetensors")), load_file(Path(run, "export", role, "model.safetensors"))
    apart = sum(((end[k].double() - mine[k]) ** 2).sum() for k in end)
    moved = sum(((mine[k] - (begin[k].double() if k in begin else 0)) ** 2).sum() for k in end)
    return float((apart / moved) ** 0.5)


def compare(o, name, run, start, mine, losses):
    rows = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
    said, apart = {}, 0
    for metric, found in losses.items():
        of_kl = [o["kl"] * row.get("policy/kl_loss", 0) if metric == "policy/loss" else 0 for row in rows]
        said[metric] = [row[metric] + kl for row, kl in zip(rows, of_kl)]
        means = [sum(found[EPOCHS * i : EPOCHS * (i + 1)]) / EPOCHS for i in range(STEPS)]
        apart = max(apart, *(abs(a - b) for a, b in zip(said[metric], means)))
    return {"algorithm": name, "weights": max(weights_apart(run, role, start, weights) for role, weights in mine.items()), "losses": apart,
            "braid_losses": said, "clipped": max(row.get("policy/clipfrac", 0) for row in rows)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--out")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar(), logging.set_verbosity_error()
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pairs = write_pairs(folder)
        start = train(arguments.braid, folder, "start", "algorithm.name=grpo", "train.total_steps=3") / "export" / "actor"
        taught = train(arguments.braid, folder, "teacher", "algorithm.name=grpo", "train.total_steps=10") / "export" / "actor"
        teacher = load(taught)
        judges = list(train_reward_models(arguments.braid, folder, start))
        for name, o in ALGORITHMS.items():
            if arguments.only not in (None, name):
                continue
            run = train_named(arguments.braid, folder, name, start, taught, judges)
            scorers = [load(judge) for judge in judges] if "reward_weights" in o else []
            each = compare(o, name, run, start, *independent(o, name, run, start, teacher, pairs, scorers))
            each["nearest_to_a_bound"] = o.get("nearest")
            seen = "low" not in o or each["clipped"] > 0  # a clip that nothing reaches is not checked
            each["ok"] = each["weights"] <= WEIGHTS and each["losses"] <= LOSSES and seen
            found.append(each)
            print(f"{name:30} weights {each['weights']:.1e}  losses {each['losses']:.1e}  clipped {each['clipped']:.2f}  nearest {o.get('nearest', 1):.0e}  {'ok' if each['ok'] else 'MISSED'}", flush=True)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"largest": {"weights": WEIGHTS, "losses": LOSSES}, "algorithms": found}, indent=1) + "\n")
    sys.exit(0 if found and all(each["ok"] for each in found) else 1)


if __name__ == "__main__":
    main()
