#!/usr/bin/env python3
"""How many launch scripts of verl and OpenRLHF `braid plan --import` reads, whether it plans the layout that they
launch, and whether its two ways of reading a script agree.

    tools/read_scripts.py FOLDER... [--braid build/braid] [--verl CHECKOUT] [--out LIST.json]

FOLDER is a checkout of verl-project/verl, verl-project/verl-recipe or OpenRLHF/OpenRLHF; --verl is the
checkout whose configuration files complete those of a recipe (default: the folder itself).

Nothing of a script runs outside braid's sandbox. What it states there is completed by upstream's own configuration
files, and the sizes that follow are compared with what braid plans. A script counts as read if braid prices it and
every key of layout, batch, lengths and models that it sets is in `keys.read`, but for those of a worker that the run
does not start; one that is planned with other sizes than it launches is printed. Then every script is read as text:
it agrees where these keys are the same, and where they are not it must have said what it could not know. --out writes
names, hashes, those keys and the sizes: facts, not the scripts (tests/data/foreign)."""
import argparse
import hashlib
import json
import os
import re
import subprocess

import yaml

CORE = [r"(^|\.)(nnodes|n_gpus_per_node|num_nodes|num_gpus_per_node|num_engines)$", r"parallel_size$",
        r"\.engine\.(tp|pp|cp|ep|etp|vpp)$", r"fsdp_size$", r"\.strategy$", r"^model_engine$",
        r"ring_attn_size$", r"zero_stage$", r"colocate_(all|actor_ref|critic_reward)", r"batch_size(_per_gpu)?$", r"use_dynamic_bsz$",
        r"max_token_len_per_gpu$", r"max_tokens_per_gpu$", r"dynamic_batch_enable$",
        r"max_(prompt|response)_length$", r"\.(prompt|response)_length$", r"max_model_len$", r"max_len$",
        r"max_new_tokens$", r"rollout\.n$", r"(^|rollout\.)n_samples_per_prompt$", r"ppo_epochs$", r"max_epochs$",
        r"model\.path$", r"model_path$", r"model_name_or_path$", r"num_layers_in_(first|last)"]
NOT_CORE = [r"val_batch_size$", r"^actor_rollout_ref\.actor\.fsdp_config\.strategy$",
            r"^critic\.fsdp\.strategy$", r"override_transformer_config\.context_parallel_size$",
            r"vllm_generate_batch_size$", r"engine_kwargs", r"inference\.(max_model_len|prompt_length)",
            r"reward_model\.rollout\.(prompt_length|response_length|max_model_len)$",
            r"^distillation\.teacher_models\.(?!teacher_model\.)", r"async_resources"]


# Keys beside those that decide which calls there are.
BESIDE = ["algorithm.adv_estimator", "algo.advantage.estimator", "algorithm.use_kl_in_reward", "critic.enable",
          "actor_rollout_ref.actor.use_kl_loss", "actor_rollout_ref.rollout.name", "reward_model.enable",
          "reward.reward_model.enable", "reward.remote_url", "train.agent_func_path", "distillation.enabled",
          "reward.reward_model.enable_resource_pool", "reward_model.enable_resource_pool",
          "actor@actor_rollout_ref.actor", "actor_rollout_ref.actor.model_engine",
          "trainer.v1.trainer_mode", "train.async_enable", "algorithm.rollout_correction.bypass_mode"]


def is_core(key):
    return any(re.search(p, key) for p in CORE) and not any(re.search(p, key) for p in NOT_CORE)


def launch_of(braid, script, way):
    """Framework, flat keys, words and notes of the first launch of RL training, as one way reads it."""
    for framework in ("verl", "openrlhf"):
        done = subprocess.run([braid, "plan", "--import", framework, script, "--read-script", way, "--keys"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            continue
        read = json.loads(done.stdout)
        arguments = {k: v for k, v in read["keys"].items() if k.startswith("-")}
        keys = {k: v for k, v in read["keys"].items() if not k.startswith("-")}
        words = [word for pair in arguments.items() for word in pair] + [f"{k}={v}" for k, v in keys.items()]
        return framework, keys, words, read["notes"]
    return None, {}, [], []


SAID = ("is not known without running it", "needs the variable", "is not known; taken", "how many GPUs")


def disagreement(keys, text_keys, text_notes):
    """How the keys that decide differ where the script is read as text: "" | "said: ..." | "silent: ..."."""
    plain = lambda value: None if value is None else re.sub(r"\$\{?\w+\}?", "", value)
    wrong = [f"{k} {keys.get(k)} is read as {text_keys.get(k)}" for k in sorted({*keys, *text_keys})
             if is_core(k) and plain(keys.get(k)) != plain(text_keys.get(k))]
    if not wrong:
        return ""
    said = any(part in note for note in text_notes for part in SAID)
    return ("said: " if said else "silent: ") + "; ".join(wrong)


def flat(tree, path="", out=None):
    out = {} if out is None else out
    for key, value in tree.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            flat(value, name, out)
        else:
            out[name] = "null" if value is None else str(value)
    return out


def resolve(keys, key, depth=0):
    text = keys.get(key, "null")
    found = re.fullmatch(r"\$\{(oc\.select:)?\s*([\w.]+)\s*(?:,\s*(.*))?\}", text)
    if not found or depth > 20:
        return text
    name = found.group(2)
    if name.startswith("."):
        name = key.rsplit(".", 1)[0] + name
    value = resolve(keys, name, depth + 1)
    return found.group(3) if value == "null" and found.group(3) else value


def own_config(words, script, folder):
    """The configuration file of --config-name, or of the started module's @hydra.main, that lies nearest to the script, as
    (tree, names of its defaults)."""
    named = re.search(r"--config-name[= ]['\"]?([\w.-]+)", " ".join(words))
    module = words[words.index("-m") + 1].split(".") if "-m" in words[:-1] else []
    for source in ("/".join(module) + ".py", "/".join(module[1:]) + ".py"):
        if not named and os.path.isfile(f"{folder}/{source}"):
            with open(f"{folder}/{source}", errors="replace") as text:
                named = re.search(r"hydra\.main\([^)]*config_name=['\"]([\w.-]+)", text.read())
    if not named:
        return {}, []
    file = named.group(1).removesuffix(".yaml") + ".yaml"
    found = [os.path.join(where, file) for where, _, files in os.walk(folder) if file in files and "verl/trainer/config" not in where]
    if not found:
        return {}, []
    shared = lambda path: len(os.path.commonprefix([os.path.abspath(path), os.path.abspath(script)]))
    with open(max(found, key=shared)) as text:
        tree = yaml.safe_load(text) or {}
    defaults = [d if isinstance(d, str) else " ".join(map(str, d.values())) for d in tree.pop("defaults", [])]
    return {key: value for key, value in tree.items() if key != "hydra"}, defaults


def verl_keys(stated, words, verl, own):
    """All keys: upstream's composed file of the backend, the recipe's own file, then what the script states."""
    line = " ".join(words)
    tree, defaults = own
    engine = stated.get("model_engine", "")
    megatron = engine == "megatron" or re.search(r"config-name[= ]'?[\w]*megatron", line) or any("megatron" in d for d in defaults)
    name = "ppo_megatron" if megatron else {"veomni": "ppo_veomni", "torchtitan": "ppo_torchtitan"}.get(engine, "ppo")
    folder = f"{verl}/verl/trainer/config"
    file = f"{folder}/_generated_{name}_trainer.yaml"
    if not os.path.exists(file):
        file = f"{folder}/{name}_trainer.yaml"
    with open(file) as text:
        keys = flat(yaml.safe_load(text))
    if "async" in line or "one_step_off" in line:
        keys.update({"rollout.nnodes": "0"})
    keys.update(flat(tree))
    keys.update(stated)
    return keys, bool(megatron)


def number(text, otherwise=1):
    try:
        return int(text)
    except (TypeError, ValueError):
        return otherwise


def step_prompts(get, apart):
    """Prompts that train in a step: those of data.gen_batch_size unless groups are filtered."""
    drawn = number(get("data.gen_batch_size"), 0)
    filtered = get("algorithm.filter_groups.enable").lower() == "true"
    return drawn if drawn > 0 and not filtered and not apart else number(get("data.train_batch_size"))


def verl_facts(stated, words, verl, own):
    keys, _ = verl_keys(stated, words, verl, own)
    get = lambda key: resolve(keys, key)
    actor, strategy = "actor_rollout_ref.actor.", resolve(keys, "actor_rollout_ref.actor.strategy")
    if "actor_rollout_ref.actor.engine.tp" in stated:
        strategy = "mlite"
    sizes = {"tp": 1, "pp": 1, "cp": 1, "ep": 1}
    names = {"megatron": ("megatron.", "tensor_model_parallel_size", "pipeline_model_parallel_size",
                          "context_parallel_size", "expert_model_parallel_size"),
             "veomni": ("veomni.", "-", "-", "ulysses_parallel_size", "expert_parallel_size"),
             "torchtitan": ("torchtitan.", "tensor_parallel_size", "pipeline_parallel_size",
                            "context_parallel_size", "expert_parallel_size"),
             "automodel": ("automodel.", "tp_size", "pp_size", "cp_size", "ep_size"),
             "mlite": ("engine.", "tp", "pp", "cp", "ep"),
             "fsdp_turbo": ("fsdp_config.turbo_config.distributed.", "tensor_parallel_size", "-",
                            "ulysses_parallel_size", "expert_parallel_size")}
    if strategy in names:
        group, *keys_of = names[strategy]
        for axis, key in zip(sizes, keys_of):
            sizes[axis] = number(get(actor + group + key))
    else:
        sizes["cp"] = max(number(get(actor + "ulysses_sequence_parallel_size")),
                          number(get(actor + "fsdp_config.ulysses_sequence_parallel_size")))
    nodes, per_node = number(get("trainer.nnodes")), number(get("trainer.n_gpus_per_node"), 8)
    apart = max(number(stated.get("rollout.nnodes"), 0), number(stated.get("actor_rollout_ref.rollout.nnodes"), 0))
    rollout_per_node = number(stated.get("rollout.n_gpus_per_node",
                                         stated.get("actor_rollout_ref.rollout.n_gpus_per_node")), per_node)
    devices = nodes * per_node
    facts = {"nodes": nodes, "gpus_per_node": per_node, "strategy": strategy, **sizes,
             "dp": max(1, devices // (sizes["tp"] * sizes["pp"] * sizes["cp"])),
             "rollout_devices": apart * rollout_per_node or devices, "asynchronous": apart > 0 or number(get("data.train_batch_size")) == 0,
             "rollout_tp": number(get("actor_rollout_ref.rollout.tensor_model_parallel_size")),
             "train_batch_size": step_prompts(get, apart),
             "mini_batch_size": number(get(actor + "ppo_mini_batch_size")),
             "samples": number(get("actor_rollout_ref.rollout.n")),
             "prompt_length": number(get("data.max_prompt_length")),
             "response_length": number(get("data.max_response_length")),
             "model": get("actor_rollout_ref.model.path").rstrip("/").split("/")[-1]}
    return facts


def openrlhf_facts(stated):
    get = lambda new, old, usual: stated.get(new, stated.get(old, usual))
    devices = number(get("actor.num_nodes", "actor_num_nodes", 1)) * number(
        get("actor.num_gpus_per_node", "actor_num_gpus_per_node", 8))
    tp = number(get("ds.tensor_parallel_size", "ds_tensor_parallel_size", 1))
    cp = number(get("ds.ring_attn_size", "ring_attn_size", 1))
    engines = number(get("vllm.num_engines", "vllm_num_engines", 0), 0)
    engine_tp = number(get("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", 1))
    return {"strategy": "deepspeed", "tp": tp, "pp": 1, "cp": cp, "ep": 1, "dp": max(1, devices // (tp * cp)),
            "rollout_devices": engines * engine_tp or devices, "rollout_tp": engine_tp,
            "train_batch_size": number(get("rollout.batch_size", "rollout_batch_size", 1024)),
            "samples": number(get("rollout.n_samples_per_prompt", "n_samples_per_prompt", 1)),
            "model": str(get("actor.model_name_or_path", "pretrain", "")).rstrip("/").split("/")[-1]}


def planned(result):
    """The same sizes, of what braid planned."""
    calls = {call["call"]: call for call in result["plan"]["calls"]}
    update, generate = calls["update_actor"], calls["generate"]
    spans = lambda call: sum(number(p.split("-")[-1]) - number(p.split("-")[0]) + 1
                             for p in str(call["mesh"]).strip("[]").split(",")) if isinstance(
                                 call["mesh"], str) else len(call["mesh"])
    problem = result["problem"]
    return {"tp": update["tp"], "pp": update["pp"], "cp": update["cp"], "ep": update["ep"], "dp": update["dp"],
            "rollout_tp": generate["tp"], "rollout_devices": generate["dp"] * generate["tp"] * generate["pp"],
            "train_batch_size": problem["prompts"], "samples": problem["samples_per_prompt"],
            "mini_batch_size": problem["prompts"] // problem["minibatches"],
            "prompt_length": problem["longest_prompt"], "response_length": problem["longest_response"]}


def different(facts, plan, dense):
    out = []
    for name, value in plan.items():
        if name not in facts or (name == "ep" and dense):
            continue
        if name == "train_batch_size" and facts.get("asynchronous"):
            continue  # a step is what is trained between two updates of the engines
        if facts[name] != value:
            out.append(f"{name} {facts[name]} is planned as {value}")
    return out


STATED_MODEL = "qwen3-8b"  # of scripts whose model is a place to fill in


def braid_reads(braid, framework, script, gpu):
    """What braid reads, its error, and the keys of models that had to be named for it: a script with a path to fill in, such as
    /YOUR_MODELPATH, says nothing of the model's size."""
    named = []
    while True:
        sizes = [word for key in named for word in ("--model-size", f"{key}={STATED_MODEL}")]
        done = subprocess.run([braid, "plan", "--import", framework, script, "--read-script", "sandbox", "--gpu", gpu, "--json",
                               "--no-changes", *sizes], capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout), "", named
        error = (done.stderr + done.stdout).strip()
        asked = re.search(r"--model-size ([\w.]+)=", error)
        if not asked or asked.group(1) in named:
            return None, error, named
        named.append(asked.group(1))


def scripts_of(folder):
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(files):
            if name.endswith(".sh"):
                yield os.path.join(where, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--braid", default="build/braid")
    parser.add_argument("--verl")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--out")
    options = parser.parse_args()
    rows, refused, other, unread, modelless, differ, text_alone = [], [], [], [], [], [], []
    for folder in options.folders:
        verl = folder if os.path.exists(f"{folder}/verl/trainer/config") else options.verl
        for script in scripts_of(folder):
            name = os.path.relpath(script, os.path.dirname(os.path.abspath(folder)))
            framework, stated, words, notes = launch_of(options.braid, script, "sandbox")
            text_framework, text_stated, _, text_notes = launch_of(options.braid, script, "text")
            if framework is None and text_framework is not None:
                text_alone.append(f"{name}: starts nothing in the sandbox, {text_framework} as text")
            if framework is None:
                continue
            difference = disagreement(stated, text_stated, text_notes) if text_framework else "silent: starts nothing"
            if difference:
                differ.append(f"{difference.split(':')[0]}: {name}{difference[difference.index(':'):]}")
            facts = verl_facts(stated, words, verl, own_config(words, script, folder)) if framework == "verl" else openrlhf_facts(stated)
            with open(script, "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            last = lambda k, v: v.rstrip("/").split("/")[-1] if re.search("(path|url)$", k) else v
            arguments = {w.split("=", 1)[0]: w.split("=", 1)[1].split("/")[-1] for w in words
                         if w.startswith("--config-name=")}
            arguments.update({w: words[i + 1].split("/")[-1] for i, w in enumerate(words[:-1])
                              if w == "--config-name"})
            arguments.update({"-m": words[words.index("-m") + 1]} if "-m" in words else {})
            rows.append({"script": name, "sha256": digest, "framework": framework,
                         "keys": {k: last(k, v) for k, v in sorted(stated.items()) if is_core(k)},
                         "beside": {**arguments, **{k: last(k, v) for k, v in stated.items() if k in BESIDE}},
                         "launches": facts})
            result, error, named = braid_reads(options.braid, framework, script, options.gpu)
            if result is None:
                refused.append(f"{name}: {error.splitlines()[-1] if error else 'no output'}")
                continue
            if named:
                modelless.append(f"{name}: {', '.join(named)}")
            absent = {e["key"] for e in result["keys"]["without_effect"] if e["why"].startswith("the run has no ")}
            missing = [k for k in stated if is_core(k) and k not in absent and k not in result["keys"]["read"]]
            if missing:
                unread.append(f"{name}: {', '.join(missing)}")
            wrong = different(facts, planned(result), result["plan"]["calls"] and
                              all(c["ep"] == 1 for c in result["plan"]["calls"]))
            if wrong:
                other.append(f"{name}: {'; '.join(wrong)}")
    if options.out:
        with open(options.out, "w") as file:
            file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    for title, lines in (("refused", refused), ("model named", modelless), ("keys not read", unread), ("another layout", other),
                         ("as text", differ), ("as text alone", text_alone)):
        for line in lines:
            print(f"{title}: {line}")
    read = len(rows) - len(refused) - len(unread)
    print(f"{len(rows)} scripts start RL training: {read} read ({100 * read / max(1, len(rows)):.0f} %; "
          f"{len(modelless)} of them with --model-size, as they name no model of the catalogue), "
          f"{len(refused)} refused, {len(unread)} with such keys not read, {len(other)} planned with another layout")
    silent = sum(line.startswith("silent") for line in differ)
    print(f"read as text: {len(rows) - len(differ)} alike, {len(differ) - silent} that differ and say so, {silent} that "
          "differ without a word" + (f"; {len(text_alone)} more start RL training as text alone" if text_alone else ""))


if __name__ == "__main__":
    main()
