#!/usr/bin/env python3
"""Writes tests/data/rows: small parquet, Arrow and CSV files and, as JSON lines, what pyarrow reads from them; and, where
`datasets` is installed, folders of its save_to_disk.

usage: tools/make_row_goldens.py [FOLDER]      (needs: pip install pyarrow; datasets for the folders)
"""
import base64
import csv
import datetime
import decimal
import json
import math
import pathlib
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq


def types_table():
    """Every type of column, with a null in each."""
    return pa.table({
        "text": pa.array(["a\"\n\u00e9\U0001f642", "", None]),
        "large_text": pa.array(["x", None, "y"], pa.large_string()),
        "flag": pa.array([True, None, False]),
        "small": pa.array([-128, None, 127], pa.int8()),
        "big": pa.array([2**63 - 1, -2**63, None]),
        "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "half": pa.array([0.5, None, 1e300]),
        "float16": pa.array([0.5, None, -2.0], pa.float16()),
        "fixed_bytes": pa.array([b"ab", None, b"\xff\x00"], pa.binary(2)),
        "nan": pa.array([float("nan"), 1.0, float("-inf")]),
        "bytes": pa.array([b"\x00\xff", b"", None]),
        "word": pa.array(["u", "v", "u"]).dictionary_encode(),
        "numbers": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
        "fixed": pa.array([[1.5, 2.5], [0.0, -1.0], [3.5, 4.5]], pa.list_(pa.float32(), 2)),
        "nested": pa.array([{"a": {"b": [{"c": 1}, None]}}, {"a": None}, None],
                           pa.struct([("a", pa.struct([("b", pa.list_(pa.struct([("c", pa.int64())])))]))])),
        "map": pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int64())),
        "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1969, 1, 1)]),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")], pa.decimal128(6, 2)),
        "nothing": pa.nulls(3),
    })


def verl_table():
    rows = [{"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": f"{n} + 1?"}], "ability": "math",
             "reward_model": {"style": "rule", "ground_truth": str(n + 1)}, "extra_info": {"split": "train", "index": n}}
            for n in range(5)]
    return pa.Table.from_pylist(rows)


def groups_table():
    return pa.table({"ids": [[n, n + 1] for n in range(3000)], "label": [str(n) for n in range(3000)]})


def plain(value):
    """What Braid makes of a value: JSON has no bytes, dates, decimals, NaN."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return dict((k, plain(v)) for k, v in value) if value and isinstance(value[0], tuple) else [plain(v) for v in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, (datetime.date, decimal.Decimal)) else value


def write_arrow(table, folder, name):
    """The same rows as an IPC stream (as `datasets` writes .arrow), an IPC file and a compressed Feather file."""
    with pa.ipc.new_stream(folder / f"{name}-stream.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    with pa.ipc.new_file(folder / f"{name}-file.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    pyarrow.feather.write_feather(table, folder / f"{name}.feather", compression="zstd")


CSV_ROWS = [["prompt", "label", "note, or more"], ["1+1=", "2", ""], ["a \"quoted\"\nline, \u00e9", "007", "x"], ["", " ", ";"]]


def write_csv(folder):
    """What Python's csv module writes, and reads again; an empty field without quotes is null."""
    for name, options in (("plain.csv", {}), ("plain.tsv", {"delimiter": "\t"}), ("unix.csv", {"lineterminator": "\n"})):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, **options).writerows(CSV_ROWS)
    rows = [{name: text or None for name, text in zip(CSV_ROWS[0], row)} for row in CSV_ROWS[1:]]
    (folder / "csv.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_saved_sets(folder):
    """saved: a Dataset in two files. saved_dict: a DatasetDict of two splits."""
    try:
        import datasets
    except ImportError:
        print("datasets is not installed: saved and saved_dict stay as they are")
        return
    rows = [{"messages": [{"role": "user", "content": f"{n}+1?"}, {"role": "assistant", "content": str(n + 1)}], "n": n}
            for n in range(5)]
    data = datasets.Dataset.from_list(rows)
    data.save_to_disk(folder / "saved", num_shards=2)
    datasets.DatasetDict(train=data, test=data.select([4])).save_to_disk(folder / "saved_dict")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/rows")
    folder.mkdir(parents=True, exist_ok=True)
    for name, table, options in (("types", types_table(), {}), ("verl", verl_table(), {"compression": "gzip"}),
                                 ("groups", groups_table(), {"row_group_size": 700, "compression": "zstd"})):
        pq.write_table(table, folder / f"{name}.parquet", **options)
        if name != "groups":
            write_arrow(table, folder, name)
        rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
        for row in rows:
            if isinstance(row.get("map"), list):
                row["map"] = {key: value for key, value in row["map"]}
        text = "".join(json.dumps(plain(row)) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{name}: {len(rows)} rows, {(folder / f'{name}.parquet').stat().st_size} bytes")
    write_csv(folder)
    write_saved_sets(folder)


if __name__ == "__main__":
    main()
