#!/usr/bin/env python3
"""Sends Braid's metrics to Weights & Biases: reads one JSON row per line from standard input.

Use as log.command (needs `pip install wandb`):

    log: {command: [python3, examples/wandb/wandb_log.py, --project, braid, --name, my-run], command_timeout_s: 60}
"""
import argparse
import json
import os
import sys


def read_rows(lines):
    """(step, metrics) of each line; what was not finite is null in the row and left out here."""
    for line in lines:
        row = json.loads(line)
        yield row.pop("step"), {name: value for name, value in row.items() if value is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", default="braid")
    parser.add_argument("--name")
    parser.add_argument("--config", help="the run's config.yaml, saved with the run")
    arguments = parser.parse_args()

    import wandb  # here, so that --help works without it

    run = wandb.init(project=arguments.project, name=arguments.name)
    if arguments.config and os.path.exists(arguments.config):
        run.save(arguments.config, policy="now")
    for step, metrics in read_rows(sys.stdin):
        run.log(metrics, step=max(step, 0))
    run.finish()


if __name__ == "__main__":
    main()
