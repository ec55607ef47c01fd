#!/usr/bin/env python3
"""The full test tier: every test program without sampling (BRAID_TEST_FULL=1), the learning runs and the lint, each a suite
that writes docs/evidence/SUITE.json with commit, command, number of cases, seconds and failures. A suite whose evidence is of this
commit and clean is not run again, so an interrupted run goes on where it stopped. Usage: test_full.py BUILD [SUITE ...]"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
LIMIT_S = 3600
SEEDS = (1, 2, 3)


def commit():
    """The commit of the working tree, marked when tracked files differ from it (evidence itself apart)."""
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    changed = subprocess.check_output(["git", "status", "--porcelain", "-uno", "--", ".", ":!docs/evidence"], cwd=ROOT, text=True)
    return head + ("-dirty" if changed.strip() else "")


def run_program(program, only="*"):
    """Runs a GoogleTest program; returns (cases, failed names, skipped names). A test that records how many inputs it tried counts as so many."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        run = subprocess.run([program, f"--gtest_filter={only}", f"--gtest_output=json:{out}"], cwd=ROOT, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                             env={**os.environ, "BRAID_TEST_FULL": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, capture_output=True, text=True)
        if not out.exists():
            sys.stderr.write(run.stdout[-4000:] + run.stderr[-4000:])
            return 1, [f"{program.name} ended with {run.returncode} and no result"], []
        cases = [(f"{suite['name']}.{case['name']}", case) for suite in json.loads(out.read_text())["testsuites"] for case in suite["testsuite"]]
    failed = [name for name, case in cases if case.get("failures")]
    if failed:
        sys.stderr.write(run.stdout[-8000:])
    return sum(int(case.get("inputs", 1)) for _, case in cases), failed, [name for name, case in cases if case.get("result") == "SKIPPED"]


def run_command(command):
    run = subprocess.run(command, cwd=ROOT, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    return 1, [] if run.returncode == 0 else [" ".join(command)], []


def suites(build):
    """{suite: (command for the record, function that returns (cases, failures, skipped))}."""
    found = {}
    for program in sorted(build.glob("*_test")):
        name = program.name.removesuffix("_test")
        found[name] = (f"BRAID_TEST_FULL=1 build/{program.name}", lambda p=program: run_program(p))
    if "runtime" in found:
        found["bad_inputs"] = ("BRAID_TEST_FULL=1 build/runtime_test --gtest_filter='BadInputs.*'", lambda: run_program(build / "runtime_test", "BadInputs.*"))
    quickstart = ["examples/quickstart/seeds.sh", str(build / "braid"), *map(str, SEEDS)]
    found["learning"] = ("examples/quickstart/seeds.sh build/braid " + " ".join(map(str, SEEDS)), lambda: run_command(quickstart))
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
            cases, failures, skipped = run()
        except subprocess.TimeoutExpired:
            cases, failures, skipped = 1, [f"{name} ran past {LIMIT_S} s"], []
        seconds = round(time.monotonic() - begin)
        path.write_text(json.dumps({"suite": name, "commit": head, "command": command, "cases": cases, "seconds": seconds,
                                    "failures": failures, "skipped": skipped}, indent=1) + "\n")
        print(f"{name}: {cases} cases, {len(failures)} failed, {len(skipped)} skipped, {seconds} s", flush=True)
        bad += failures
    print(f"test-full: {len(bad)} failures")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
