#!/usr/bin/env python3
"""Prints tables of the keys of another framework and what they are called here, for docs/from_*.md.

The names come from the program's own table (src/foreign/keys/keys_of_*.cc). What becomes of a value is asked of the program, one
key at a time, with the values of EXAMPLES. It fails where a line of the table is not understood, and where the program says nothing
of a key, or another name than the table.

Usage: print_foreign_keys.py trl|verl|openrlhf (--here | --nothing) COMMAND...    --here: keys with a counterpart; --nothing: those
                                                                                  without; COMMAND is `braid config`
       print_foreign_keys.py --ask KEYS RUN.yaml COMMAND...                       a line for each key of a file, beside a run; KEYS is
                                                                                  what `braid plan --import … --keys` prints, or lines
                                                                                  KEY=VALUE
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "foreign" / "keys"
TABLES = [FOLDER / f"keys_of_{part}.cc" for part in ("steps", "models", "learning", "machines")]
ENTRY = re.compile(r'^  \{"([^"]*)", "([^"]*)", "([^"]*)", "((?:[^"\\]|\\.)*)"(?:, (\w+))?\},$')
NAMES = {"trl": ("TRL", "TRL PPO", "transformers"), "verl": ("verl",), "openrlhf": ("OpenRLHF",)}

# The run of which the examples are, and values of theirs for each kind of conversion.
RUN = """algorithm: {name: grpo}
rollout: {prompts_per_step: 64, samples_per_prompt: 8, max_response_length: 1024}
data: {max_prompt_length: 512}
train: {total_steps: 100}
"""
EXAMPLES = {
    "sequences_to_minibatches": ["128"], "prompts_to_minibatches": ["16"], "completions_to_prompts": ["512"],
    "micro_completions_to_prompts": ["16"], "sequences_to_tokens": ["4"], "completions_to_episodes": ["10000"],
    "epochs_to_steps": ["2"], "ratio_to_warmup": ["0.1"], "steps_or_share": ["20", "-1"], "zero_is_off": ["null"],
    "as_boolean": [], "switched_on": ["anything"], "negated": ["true"], "every_step": ["true"], "one_file": [],
    "both_clips": ["0.2"], "clip_range": ["[-5, 5]"], "two_betas": ["0.95"],
    "estimator_to_algorithm": ["gae", "group_norm", "reinforce"], "loss_mode": ["gspo", "vanilla"],
    "strength_of_reference": ["0.04"], "loss_aggregation": ["grpo", "dapo", "dr_grpo"], "ratio_level": ["sequence"],
    "sync_of_reference": ["true"], "mix_of_reference": ["0.6"], "group_normalization": ["true", "false"],
    "kl_estimator": ["low_var_kl"], "kl_in_loss": ["true"], "kl_in_reward": ["true"], "schedule": ["constant_with_warmup", "cosine"],
    "dtype": ["bfloat16", "float16"], "kept_dtype": ["bfloat16", "float32"], "half_precision": ["true"], "truncation": ["left", "true"], "to_chat": ["true"],
    "learned_turns": ["true"], "template_argument": ["false"], "reward_model_entry": ["my/reward"],
    "reward_url": ["http://node7:5000/score", "reward_func.py"], "reward_function": ["my_rewards.py"], "resume": ["true", "disable"],
    "save_strategy": ["no", "best"], "eval_strategy": ["no"], "buffer_switch": ["false"], "cpu_switch": ["true"],
    "devices_of_cluster": ["8"], "engine_tp": ["2"], "engine_dp": ["4"], "update_tp": ["4"], "update_pp": ["2"],
    "micro_batches_to_minibatches": ["16"], "accumulation_to_minibatches": ["8"], "updates_to_steps": ["100", "-1"],
    "updates_or_share": ["20", "-1"], "steps_between_syncs": ["64"], "steps_of_run": ["100", "null"], "rollouts_to_updates": ["10"],
    "list_of_two": ["[0.9, 0.95]"], "floor_to_ratio": ["1e-7"], "distillation": ["true"], "loss_of_distillation": ["k1", "k3"],
    "gradient_of_distillation": ["true", "false"], "rewards_of_distillation": ["false", "true"], "path_of_teacher": [],
    "low_and_high_clip": ["[0.2, 0.28]"], "spread_of_grpo": ["true", "false"], "whitened_advantages": ["true", "false"],
    "without_spread": ["true"], "tis_switch": ["true", "false"], "tis_bounds": ["[0.5, 5]"], "kl_of_openrlhf": ["true", "false"],
    "coef_in_loss": [], "coef_in_reward": [], "kl_estimator_in_loss": ["low_var_kl"], "kl_estimator_in_reward": ["kl"],
    "kl_controller": [], "adaptive_target": ["6"], "adaptive_only": [], "truncation_of_sequence": ["keep_end", "keep_start"],
    "sampling_strategy": ["sequential"], "function_of_entry": [], "buffer_length": [], "device_name": ["cuda"],
    "trackers": ["tensorboard", "wandb"], "project_of_tracker": ["sorting"], "adapters": ["true"], "offloads": ["true", "false"],
    "reward_functions": ["my_rewards.py"], "always_sampled": ["true"], "sampled_evaluation": ["false"], "temperature_of_evaluation": [],
    "devices_of_role": [], "eval_interval": ["20", "-1"], "zero_of_all": ["3"], "zero_group": ["8"], "sharded": ["true"], "colocated": ["true", "false"], "no_conversion": [],
}
BY_HAND = ("no_conversion", "devices_of_role")
# Names of theirs in place of those above, where a framework has its own.
OWN_EXAMPLES = {
    "loss_agg_mode": ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"], "adv_estimator": ["gae", "grpo", "rloo"],
    "kl_estimator": ["k3"], "kl.estimator": ["k3"], "kl_penalty": ["kl"], "custom_reward_function.path": ["my_reward.py"],
    "filter_overlong_prompts": ["true"], "truncation": ["left", "right"], "lr_scheduler": ["constant_with_warmup"],
    "bf16": ["true"], "scale_rewards": ["group", "none"], "reward_model.enable": ["true"],
    "resume_from_checkpoint": ["true"], "resume_mode": ["auto", "disable"], "load_checkpoint": ["true"], "resume_from_path": [],
    "apply_chat_template_kwargs.*": ["false"], "delta": ["null"], "advantage_estimator": ["gae", "group_norm", "reinforce"],
    "advantage.estimator": ["gae", "group_norm", "reinforce"], "lr_warmup_steps": ["-1"], "total_training_steps": ["null"],
    "max_critic_ckpt_to_keep": [], "freezing_actor_steps": ["-1"], "entropy_loss_coef": ["null"], "dual_clip": ["null"],
    "missing_eos_penalty": ["null"], "rollout_correction.rollout_is_threshold": [],
}
PARTS = {"OpenRLHF's names since its command line has groups.": "Grouped names", "Run.": "The run",
         "Devices, and how calls share them.": "Devices"}


def entries():
    """Yields (part, theirs, frameworks, ours, note, conversion) of every line of the program's table."""
    part = None
    for table, number, line in ((table, *place) for table in TABLES for place in enumerate(table.read_text().splitlines(), 1)):
        if heading := re.match(r"^  // (.*)$", line):
            part = PARTS.get(heading[1], heading[1].rstrip("."))
        elif line.startswith('  {"'):
            entry = ENTRY.match(line)
            if entry is None:
                sys.exit(f"{table.name}:{number}: not understood: {line}")
            yield part, entry[1], entry[2].split(", "), entry[3], entry[4], entry[5]


def written(theirs):
    """A key that an entry stands for, as it could be written."""
    return theirs.replace(".*", ".enable_thinking" if "template" in theirs else ".name").replace("_*", "_name")


def answer(command, run, theirs, value):
    """What the program says of a key with a value; None where it takes the key as one of its own."""
    child = subprocess.run([*command, run, f"{written(theirs)}={value}"], capture_output=True, text=True)
    if child.returncode == 0:
        return None
    said = (child.stderr + child.stdout).strip().partition("command line: ")[2]
    if said.startswith(f"{written(theirs)} must be"):
        return None  # one of its own, which has no such value
    if "is a key of" not in said:
        sys.exit(f"{theirs}={value}: the program does not know it: {child.stderr}")
    return said


def example(said, value):
    """What the program says to write for a value."""
    if found := re.search(r": instead of .*? write '(.*)'(?:, (.*))?$", said):
        what = " and ".join(f"`{part}`" for part in found[1].split("' and '"))
        return f"`{value}` → {what}" + (f" ({found[2]})" if found[2] else "")
    if found := re.search(r": for .*? that is (.*)$", said):
        return f"`{value}` → {found[1]}"
    if found := re.search(r"has no counterpart: (.*)$", said):
        return f"`{value}`: none, {found[1]}"
    return ""


def cell(text):
    return text.replace("|", "\\|")


def here(command, run, rows):
    part = None
    for row_part, theirs, _, ours, note, conversion in rows:
        said = answer(command, run, theirs, (OWN_EXAMPLES.get(theirs) or EXAMPLES.get(conversion) or ["1"])[0])
        expected = ours.replace("ROLE", "actor")
        if said is not None and f"here it is {expected}" not in said:
            sys.exit(f"{theirs}: the table says {ours}, the program: {said}")
        if row_part != part:
            print("" if part is None else "\n", end="")
            part = row_part
            print(f"**{part}**\n\n| theirs | here | unit, what to know | value |\n|---|---|---|---|")
        values = OWN_EXAMPLES.get(theirs, EXAMPLES[conversion] if conversion else [])
        shown = [example(answer(command, run, theirs, value) or "", value) for value in values]
        names = " and ".join(f"`{name}`" for name in ours.split(" and "))
        value = "; ".join(text for text in shown if text) or ("by hand" if conversion in BY_HAND else "as it is")
        print(f"| `{theirs}` | {names} | {cell(note)} | {cell(value)} |")


def nothing(command, run, rows):
    print("| theirs | what there is instead |\n|---|---|")
    for _, theirs, _, _, note, _ in rows:
        said = answer(command, run, theirs, "1")
        if said is None or "without a counterpart" not in said:
            sys.exit(f"{theirs}: the table says that there is no counterpart, the program: {said}")
        print(f"| `{theirs}` | {cell(note)} |")


def stated(path):
    """The (key, value) pairs of a file."""
    text = Path(path).read_text()
    if text.lstrip().startswith("{"):
        return [(key, value) for key, value in json.loads(text)["keys"].items() if not key.startswith("-")]
    return [tuple(line.strip().split("=", 1)) for line in text.splitlines() if line.strip()]


def ask(keys, run, command):
    for theirs, value in stated(keys):
        child = subprocess.run([*command, run, f"{theirs}={value}"], capture_output=True, text=True)
        said = (child.stderr + child.stdout).strip().partition("command line: ")[2].partition("\n")[0]
        shown = example(said, value).partition("→ ")[2].replace("`", "") or example(said, value).partition("`: ")[2]
        if found := re.search(r"without a counterpart here: (.*); remove it$", said):
            shown = f"nothing: {found[1]}"
        elif not shown and (found := re.search(r"; here it is (.*)$", said)):
            shown = found[1]
        print(f"{theirs}={value}\n    {shown or ('the same' if child.returncode == 0 else said)}")


def main():
    if len(sys.argv) > 4 and sys.argv[1] == "--ask":
        return ask(sys.argv[2], sys.argv[3], sys.argv[4:])
    if len(sys.argv) < 4 or sys.argv[1] not in NAMES or sys.argv[2] not in ("--here", "--nothing"):
        sys.exit(__doc__)
    chosen = [row for row in entries() if set(row[2]) & set(NAMES[sys.argv[1]])]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run.yaml"
        run.write_text(RUN)
        if sys.argv[2] == "--here":
            here(sys.argv[3:], str(run), [row for row in chosen if row[3]])
        else:
            nothing(sys.argv[3:], str(run), [row for row in chosen if not row[3]])


if __name__ == "__main__":
    main()
