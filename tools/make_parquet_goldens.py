#!/usr/bin/env python3
"""Writes tests/data/rows: small parquet files and, as JSON lines, what pyarrow reads from them.

usage: tools/make_parquet_goldens.py [FOLDER]      (needs: pip install pyarrow)
"""
import base64
import datetime
import decimal
import json
import math
import pathlib
import sys

import pyarrow as pa
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
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, (datetime.date, decimal.Decimal)) else value


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/rows")
    folder.mkdir(parents=True, exist_ok=True)
    for name, table, options in (("types", types_table(), {}), ("verl", verl_table(), {"compression": "gzip"}),
                                 ("groups", groups_table(), {"row_group_size": 700, "compression": "zstd"})):
        pq.write_table(table, folder / f"{name}.parquet", **options)
        rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
        for row in rows:
            if isinstance(row.get("map"), list):
                row["map"] = {key: value for key, value in row["map"]}
        text = "".join(json.dumps(plain(row)) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{name}: {len(rows)} rows, {(folder / f'{name}.parquet').stat().st_size} bytes")


if __name__ == "__main__":
    main()
