#!/usr/bin/env python3
"""Passes Braid's metrics on to Weights & Biases or MLflow: log_tracker.py wandb|mlflow PROJECT RUN FOLDER.

Reads one JSON row per line from standard input, {"step": N, name: number or null, ...}, until it ends. FOLDER is the
run's folder; its config.yaml is saved with the run. A package that is missing ends the program with status 3 and the
command that installs it.
"""
import json
import os
import sys


def rows(lines):
    """(step, metrics) of each line; what was not finite is null in the row and left out here."""
    for line in lines:
        row = json.loads(line)
        yield max(row.pop("step"), 0), {name: value for name, value in row.items() if value is not None}


def log_to_wandb(package, project, name, config):
    run = package.init(project=project, name=name)
    if os.path.exists(config):
        run.save(config, policy="now")
    for step, metrics in rows(sys.stdin):
        run.log(metrics, step=step)
    run.finish()


def log_to_mlflow(package, project, name, config):
    package.set_experiment(project)
    with package.start_run(run_name=name):
        if os.path.exists(config):
            package.log_artifact(config)
        for step, metrics in rows(sys.stdin):
            package.log_metrics(metrics, step=step)


def main():
    tracker, project, name, folder = sys.argv[1:]
    try:
        package = __import__(tracker)
    except ImportError as error:
        sys.stderr.write(f"log.{tracker}: {error}; install it with: pip install {tracker}\n")
        return 3
    log = {"wandb": log_to_wandb, "mlflow": log_to_mlflow}[tracker]
    log(package, project, name, os.path.join(folder, "config.yaml"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
