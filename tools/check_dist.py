#!/usr/bin/env python3
"""Tries what `make dist` packs as an ordinary user in an empty folder, with nothing in the environment but PATH and HOME.

* `check_dist.py planner PLANNER BRAID [ENGINE]`: the planner prints for examples/plans/ppo_7b_8gpu.yaml what BRAID prints, a plan that
  it writes is simulated, and no program needs newer libraries than tools/check_symbols.py allows.
* `check_dist.py wheel WHEEL BRAID`: pip installs the wheel in two fresh environments, one that has torch beside the wheel and one that
  finds it elsewhere; both train two steps to the losses of BRAID and plan as it does, on the bundled libraries alone; without torch
  the command says what to install."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import check_symbols

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
PLAN = ROOT / "examples/plans/ppo_7b_8gpu.yaml"
PYTHON = os.environ.get("BRAID_SYSTEM_PYTHON", "/usr/bin/python3")  # one that an ordinary user may start
LIMIT_S = 600
TIMES = re.compile(r"in [0-9.]+ (s|ms|us)$", re.M)


class Place:
    """A folder with inputs that all may read, and an empty one of an ordinary user, who runs the commands there."""

    def __init__(self, base):
        self.base, self.home = Path(base), Path(base) / "home"
        self.base.chmod(0o755)
        self.home.mkdir()
        self.as_user = []
        if os.getuid() == 0:
            os.chown(self.home, NOBODY, NOBODY)
            self.as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]

    def run(self, *command, code=0):
        """What a command prints, which has to end with `code`; with its errors where that is not 0."""
        words = [*self.as_user, *map(str, command)]
        run = subprocess.run(words, cwd=self.home, env={"PATH": "/usr/bin:/bin", "HOME": str(self.home)}, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=LIMIT_S)
        if run.returncode != code:
            sys.exit(f"check_dist: {' '.join(words)} ended with {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-4000:]}")
        return run.stdout + (run.stderr if code else "")

    def give(self, path):
        """A copy of a file or folder that the user may read."""
        target = self.base / Path(path).name
        if Path(path).is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            shutil.copy(path, target)
        return target


def said(*command):
    return subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout


def expect_equal(what, found, wanted):
    if found != wanted:
        sys.exit(f"check_dist: {what} differs:\n--- found\n{found}\n--- wanted\n{wanted}")


def check_plan(place, program, braid):
    config, wanted_plan = place.give(PLAN), place.base / "wanted.yaml"
    wanted = TIMES.sub("", said(braid, "plan", PLAN, "--max-units", "1", "--out", wanted_plan))
    if "lower bound" not in wanted:
        sys.exit(f"check_dist: {braid} plan prints no lower bound:\n{wanted}")
    found = place.run(program, "plan", config, "--max-units", "1", "--out", "plan.yaml")
    expect_equal("the plan", TIMES.sub("", found), wanted)
    expect_equal("the plan's file", (place.home / "plan.yaml").read_text(), wanted_plan.read_text())
    simulated = said(braid, "simulate", PLAN, "--plan", wanted_plan)
    expect_equal("the simulation", place.run(program, "simulate", config, "--plan", "plan.yaml"), simulated)


def check_planner(planner, braid, *engine):
    with tempfile.TemporaryDirectory() as base:
        place = Place(base)
        check_plan(place, place.give(planner), braid)
    faults = [fault for path in (planner, braid, *engine) for fault in check_symbols.describe(path)[1]]
    if faults:
        sys.exit("\n".join(faults))
    if check_symbols.dynamic_symbols(planner) is not None:
        sys.exit(f"check_dist: {planner} is not static")
    print("planner: ok")


def training(inputs, run):
    """Arguments of two steps of SFT on a tiny model."""
    return ["train", inputs / "sft.yaml", f"model.config={inputs / 'model/config.json'}", f"tokenizer.path={inputs / 'model'}",
            f"run.dir={run}", "train.total_steps=2"]


def losses(run):
    rows = [json.loads(line) for path in Path(run).rglob("metrics.jsonl") for line in path.read_text().splitlines()]
    found = [row["sft/loss"] for row in rows if "sft/loss" in row]
    if len(found) != 2:
        sys.exit(f"check_dist: {run} has {len(found)} losses of 2 in {rows}")
    return found


def make_environment(place, name, torch, beside):
    """A virtual environment of the user's that sees torch: linked in beside other packages, or in a folder of its own."""
    place.run(PYTHON, "-m", "venv", "--without-pip", name)  # torch's own packages have pip too
    packages = next((place.home / name / "lib").glob("python3*/site-packages"))
    if beside:
        for path in torch.parent.iterdir():
            if not (packages / path.name).exists():
                place.run("ln", "-s", path, packages / path.name)
    else:
        place.run("sh", "-c", f"echo {torch.parent} > {packages}/torch_elsewhere.pth")
    return packages


def check_libraries(place, packages):
    """Every library of the installed engine is the system's, torch's or one of the wheel."""
    package = packages / "braid_engine"
    allowed = re.compile(rf"{re.escape(str(package))}/|{re.escape(str(packages))}/torch/|/lib(64)?/.*/(ld-linux-x86-64|lib(c|m|dl|pthread|rt|gcc_s|"
                         r"stdc\+\+))\.so")
    for line in place.run("ldd", package / "braid-engine").splitlines():
        if "=>" in line and not allowed.match(line.split("=> ")[1]) and "torch/lib/" not in line:
            sys.exit(f"check_dist: of the host: {line.strip()}")


def check_installed(place, wheel, braid, beside):
    torch = Path((ROOT / ".deps/torch_dir").read_text().strip())
    name = "beside" if beside else "elsewhere"
    packages = make_environment(place, name, torch, beside)
    place.run(place.home / name / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", place.give(wheel))
    program = place.home / name / "bin/braid"
    if beside:
        check_libraries(place, packages)
        program = packages / "braid_engine/braid"  # without the launcher: what the programs find by themselves
    expect_equal("--version", place.run(program, "--version"), said(braid, "--version"))
    inputs = place.give(ROOT / "examples/quickstart")
    place.run(program, *training(inputs, f"runs-{name}"))
    check_plan(place, program, braid)
    if beside:  # another torch, or none
        place.run("sh", "-c", f"rm {packages}/torch-*.dist-info")
        said_so = place.run(place.home / name / "bin/braid", "--version", code=1)
        if "pip install torch==" not in said_so:
            sys.exit(f"check_dist: without torch the command says\n{said_so}")
    return losses(place.home / f"runs-{name}")


def check_wheel(wheel, braid):
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as other:
        place = Place(base)
        said(braid, *training(ROOT / "examples/quickstart", other))
        for beside in (True, False):
            expect_equal("the losses", check_installed(place, wheel, braid, beside), losses(other))
    print("wheel: ok")


def main():
    checks = {"planner": check_planner, "wheel": check_wheel}
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in checks:
        sys.exit(__doc__)
    checks[sys.argv[1]](*(Path(path).resolve() for path in sys.argv[2:]))


if __name__ == "__main__":
    main()
