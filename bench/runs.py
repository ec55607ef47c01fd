"""What the benchmarks that run `braid` share: a command, a model of the quickstart's family, prompts of random tokens."""

import json
import random
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples/quickstart/model"  # its tokenizer; benchmarks give their models other sizes
PRESETS = {
    "tiny": {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 688},
    "small": {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1376},
}


def run(command):
    """Its output; a command that fails ends the benchmark with it."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}\nfailed")
    return done.stdout


def write_model(path, **changes):
    """The config.json of a model with eight heads of queries and four of keys; returns it."""
    config = json.loads((MODEL / "config.json").read_text())
    config.update(num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=2048, **changes)
    config.pop("head_dim", None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return config


def write_prompts(path, count, shortest, longest, vocab):
    """`count` prompts of random tokens, the same in every call."""
    numbers = random.Random(1)
    rows = [{"prompt": [numbers.randrange(4, vocab) for _ in range(numbers.randint(shortest, longest))]}
            for _ in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def training_keys(work, model, data, **of):
    """Keys that the runs have in common: random weights, the file's order, answers of full length."""
    return [f"run.dir={work}", "algorithm.kl.coef=0.04", f"model.config={model}", f"tokenizer.path={MODEL}",
            f"data.train={data}", "data.shuffle=false", f"data.max_prompt_length={of['prompt']}",
            f"rollout.prompts_per_step={of['prompts']}", f"rollout.samples_per_prompt={of['samples']}",
            f"rollout.max_response_length={of['response']}", "rollout.ignore_eos=true",
            "reward=[{type: rule, rule: digit_share}]", "optim.actor.lr=1e-5", "log.tensorboard=false",
            "log.samples_every=0"]
