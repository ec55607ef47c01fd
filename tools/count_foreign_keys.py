#!/usr/bin/env python3
"""Counts the keys of another framework that the program has advice for, of all that a checkout of it declares, and prints the others.
Known are those that the program answers with a name of its own or with what there is instead; its own are those that it takes.

Usage: count_foreign_keys.py trl|verl|openrlhf CHECKOUT COMMAND...      COMMAND is `braid config`
"""
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from print_foreign_keys import RUN


def trl_keys(checkout):
    """{what: fields} of the dataclasses of TRL's trainers."""
    files = sorted(checkout.glob("trl/trainer/*_config.py")) + sorted(checkout.glob("trl/experimental/*/*_config.py"))
    return {path.stem: re.findall(r"^    (\w+): [^\n]*= field\(", path.read_text(), re.M) for path in files}


def verl_keys(checkout):
    """Dotted names of the leaves of verl's composed configuration."""
    names, above = [], []
    lines = [line for line in (checkout / "verl/trainer/config/_generated_ppo_trainer.yaml").read_text().splitlines() if re.match(r" *[\w]+:", line)]
    for line, following in zip(lines, [*lines[1:], ""]):
        depth = len(line) - len(line.lstrip())
        name = line.strip().partition(":")[0]
        above = [entry for entry in above if entry[0] < depth] + [(depth, name)]
        if len(following) - len(following.lstrip()) <= depth and not any(part.startswith("_") for _, part in above):
            names.append(".".join(part for _, part in above))
    return {"ppo_trainer": names}


def openrlhf_keys(checkout):
    text = (checkout / "openrlhf/cli/train_ppo_ray.py").read_text()
    names = re.findall(r'add_argument\(\s*"--([\w.\-]+)"', text)
    names += [f"{role}.{name}" for name in re.findall(r'add_argument\(\s*f"--\{prefix\}\.([\w.\-]+)"', text) for role in ("actor", "critic")]
    return {"train_ppo_ray": sorted({name.replace("-", "_") for name in names})}


def kind_of(command, run, name):
    said = subprocess.run([*command, run, f"{name}=1"], capture_output=True, text=True).stderr
    if "is a key of" in said:
        return "known"
    if "unknown key" in said or f"{name.partition('.')[0]} must be" in said:
        return "unknown"
    return "its own"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    read = {"trl": trl_keys, "verl": verl_keys, "openrlhf": openrlhf_keys}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run.yaml"
        run.write_text(RUN)
        for what, names in read(Path(sys.argv[2])).items():
            kinds = {name: kind_of(sys.argv[3:], str(run), name) for name in names}
            counts = collections.Counter(kinds.values())
            print(f"{what}: {len(names)} keys, {counts['known']} known, {counts['its own']} its own, {counts['unknown']} unknown")
            print("   ", *(name for name, kind in kinds.items() if kind == "unknown"))


if __name__ == "__main__":
    main()
