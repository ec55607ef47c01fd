#!/usr/bin/env python3
"""The full test tier: every test program without sampling (BRAID_TEST_FULL=1), the learning runs, the outputs of pages (slow ones
too) and the lint, each a suite that writes docs/evidence/SUITE.json with commit, command, number of cases, seconds and failures. A
suite whose evidence is of this commit and clean is not run again, so an interrupted run goes on where it stopped.
Usage: test_full.py BUILD [SUITE ...]"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
LIMIT_S = 7200  # of a suite; the longest takes an hour on two idle cores, and longer beside other work
SEEDS = (1, 2, 3)


def commit():
    """The commit of the working tree, marked when tracked files differ from it (evidence itself apart)."""
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    changed = subprocess.check_output(["git", "status", "--porcelain", "-uno", "--", ".", ":!docs/evidence"], cwd=ROOT, text=True)
    return head + ("-dirty" if changed.strip() else "")


FAMILIES = "*/JobFamily.*"
MORE_LAYOUTS = "JobProcess.EveryRandom*:JobProcess.EveryOrder*:JobProcess.EveryAlgorithm*"
# Cases of a program that are suites of their own, by their filter; one that leaves out cases names those that others run.
PARTS = {
    "longer_searches": ("search", "*ALongerSearch*"),
    "plan_edits": ("search", "PlanClaims.NoLegalEdit*"),
    "plan_physics": ("search", "*PlanPhysics*"),
    "bad_inputs": ("commands", "BadInputs.*"),
    "kills": ("runs", "*/KilledRun.*:JobKilledRun.AThousandSteps*"),
    "rank_kills": ("runs", "JobKilledRun.*Rank*:JobKilledRun.Torchrun*:JobLaunchers.*"),
    "failures": ("runs", "*FailedRun.*"),
    "memory": ("runs", "JobMemory.*"),
    "families": ("runs", FAMILIES),
    "more_layouts": ("runs", MORE_LAYOUTS),
    "layouts": ("runs", f"JobProcess.*-{MORE_LAYOUTS}"),
    "fused": ("runs", "JobFused.*:JobHandOver.*"),
}
OWN_KEYS = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "value_param", "type_param", "failures"}


def run_program(program, chosen="*"):
    """Runs the chosen cases of a GoogleTest program; returns (cases, failed names, skipped names, what the cases recorded). A
    test that records how many inputs it tried counts as so many."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        run = subprocess.run([program, f"--gtest_output=json:{out}", f"--gtest_filter={chosen}"], cwd=ROOT, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                             env={**os.environ, "BRAID_TEST_FULL": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, capture_output=True, text=True)
        if not out.exists():
            sys.stderr.write(run.stdout[-4000:] + run.stderr[-4000:])
            return 1, [f"{program.name} ended with {run.returncode} and no result"], [], {}
        cases = [(f"{suite['name']}.{case['name']}", case) for suite in json.loads(out.read_text())["testsuites"] for case in suite["testsuite"]]
    failed = [name for name, case in cases if case.get("failures")]
    if failed:
        log = program.with_name(f"{program.name}-failed.log")
        log.write_text(run.stdout)
        sys.stderr.write(f"{run.stdout[-8000:]}\nall of it: {log}\n")
    recorded = {name: {key: value for key, value in case.items() if key not in OWN_KEYS} for name, case in cases}
    skipped = [name for name, case in cases if case.get("result") == "SKIPPED"]
    return sum(int(case.get("inputs", 1)) for _, case in cases), failed, skipped, {name: values for name, values in recorded.items() if values}


def run_command(command):
    run = subprocess.run(command, cwd=ROOT, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    return 1, [] if run.returncode == 0 else [" ".join(command).replace(f"{ROOT}/", "")], [], {}


def suites(build):
    """{suite: (command for the record, function that returns (cases, failures, skipped, recorded))}."""
    found = {}
    for program in sorted(build.glob("*_test")):
        name = program.name.removesuffix("_test")
        left = ":".join(chosen.split("-")[0] for whole, chosen in PARTS.values() if whole == name)
        chosen = f"-{left}" if left else "*"
        found[name] = (f"BRAID_TEST_FULL=1 build/{program.name}" + (f" --gtest_filter='{chosen}'" if left else ""),
                       lambda p=program, c=chosen: run_program(p, c))
    for name, (whole, chosen) in PARTS.items():
        if whole not in found:
            continue
        found[name] = (f"BRAID_TEST_FULL=1 build/{whole}_test --gtest_filter='{chosen}'",
                       lambda p=build / f"{whole}_test", c=chosen: run_program(p, c))
    quickstart = ["examples/quickstart/seeds.sh", str(build / "braid"), *map(str, SEEDS)]
    found["learning"] = ("examples/quickstart/seeds.sh build/braid " + " ".join(map(str, SEEDS)), lambda: run_command(quickstart))
    curves = ["python3", "tools/plan_curves.py", str(build / "braid"), "--out", str(EVIDENCE / "plan_curves_runs.json")]
    found["plan_curves"] = ("python3 tools/plan_curves.py build/braid --out docs/evidence/plan_curves_runs.json", lambda: run_command(curves))
    steps = [os.environ.get("BRAID_PYTHON", "python3"), "tools/check_steps.py", str(build / "braid"), "--out", str(EVIDENCE / "steps_runs.json")]
    found["steps"] = ("python3 tools/check_steps.py build/braid --out docs/evidence/steps_runs.json", lambda: run_command(steps))
    dist = (f"make dist BUILD={build} && tools/check_dist.py planner dist/braid-*-linux-$(uname -m) {build}/braid {build}/braid-engine && "
            f"tools/check_dist.py wheel dist/braid_engine-*.whl {build}/braid")
    found["dist"] = (dist.replace(f"{build}", "build"), lambda: run_command(["bash", "-c", dist]))
    docs = ["python3", "tools/check_outputs.py", str(build / "braid"), "--all"]
    found["docs"] = ("python3 tools/check_outputs.py build/braid --all", lambda: run_command(docs))
    found["lint"] = ("make lint", lambda: run_command(["make", "lint"]))
    return found


def is_done(path, head):
    if not path.exists():
        return False
    old = json.loads(path.read_text())
    return old["commit"] == head and not head.endswith("-dirty") and not old["failures"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    known, wanted = suites(Path(sys.argv[1]).resolve()), sys.argv[2:]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no suite {unknown[0]}; the suites are: {' '.join(known)}")
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    head, bad = commit(), []
    for name in wanted or known:
        path = EVIDENCE / f"{name}.json"
        if is_done(path, head):
            print(f"{name}: done at this commit")
            continue
        command, run = known[name]
        begin = time.monotonic()
        try:
            cases, failures, skipped, recorded = run()
        except subprocess.TimeoutExpired:
            cases, failures, skipped, recorded = 1, [f"{name} ran past {LIMIT_S} s"], [], {}
        seconds = round(time.monotonic() - begin)
        evidence = {"suite": name, "commit": head, "command": command, "cases": cases, "seconds": seconds,
                    "failures": failures, "skipped": skipped}
        path.write_text(json.dumps({**evidence, **({"recorded": recorded} if recorded else {})}, indent=1) + "\n")
        print(f"{name}: {cases} cases, {len(failures)} failed, {len(skipped)} skipped, {seconds} s", flush=True)
        bad += failures
    print(f"test-full: {len(bad)} failures")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
