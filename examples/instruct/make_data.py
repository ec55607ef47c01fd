#!/usr/bin/env python3
"""Writes the two small data sets of this folder from examples/gsm8k/sample.jsonl: problems.jsonl as TRL's users have
them, and problems.parquet as verl's preprocessing scripts write them. (needs: pip install pyarrow)"""
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet

HERE = Path(__file__).resolve().parent
SYSTEM = "You solve problems. Think in a few words, then write the number alone between <answer> and </answer>."


def problems():
    for line in (HERE.parent / "gsm8k" / "sample.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield row["question"], row["answer"].split("####")[1].strip()


def trl_row(question, answer):
    return {"prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}], "answer": answer}


def verl_row(index, question, answer):
    return {
        "data_source": "own/problems",
        "prompt": [{"role": "user", "content": question + ' Think step by step and write the final number after "####".'}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": "train", "index": index},
    }


def main():
    lines = [json.dumps(trl_row(*problem)) + "\n" for problem in problems()]
    (HERE / "problems.jsonl").write_text("".join(lines))
    rows = [verl_row(index, *problem) for index, problem in enumerate(problems())]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), HERE / "problems.parquet", compression="zstd")


if __name__ == "__main__":
    main()
