#!/usr/bin/env python3
"""Draws the plan that `braid plan` finds as a timeline, an SVG with a row for each GPU: passes and generation of each call, and
below them the weights that move. Its colours follow the reader's light or dark setting. The times are those of the trace that
`braid simulate` writes for the plan.

Usage: plot_plan.py BRAID OUT.svg [--check]     --check writes nothing and fails where OUT.svg is another
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG, TITLE = str(ROOT / "examples/plans/ppo_7b_8gpu.yaml"), "One PPO step: four 7B models on eight A100, as planned by braid plan"
WIDTH, LEFT, TOP, ROW, BAR, THIN, RIGHT, BOTTOM = 860, 62, 48, 30, 18, 4, 14, 74
PASSES = ("generate", "forward", "backward", "optimizer", "reduce")
NAMES = ["generate", "reward", "old_logprob", "values", "ref_logprob", "update_critic", "update_actor"]
LIGHT = ["#2f6fb7", "#8a5a2b", "#1f8a70", "#b0447e", "#5b7f12", "#b2560d", "#6a4fb3"]
DARK = ["#6ea8e8", "#c79b6c", "#4fc3a5", "#e389b8", "#a5c94f", "#f0954a", "#a893ec"]
STYLE = """text { font-family: sans-serif; font-size: 13px; fill: #1f2328 } .small { font-size: 12px; fill: #57606a } .title { font-weight: 600; font-size: 15px }
.page { fill: #ffffff; stroke: #d0d7de } .lane { fill: #f0f2f5 } .grid { stroke: #d0d7de } .host { fill: #d8dee4 }
.in { fill: #ffffff; font-size: 12px; font-weight: 600 } .move { fill: #57606a }"""
STYLE_DARK = """text { fill: #e6edf3 } .small { fill: #9da7b1 } .page { fill: #0d1117; stroke: #30363d } .lane { fill: #161b22 } .grid { stroke: #30363d }
.host { fill: #30363d } .in { fill: #0d1117 } .move { fill: #9da7b1 }"""


def plan_and_trace(braid):
    """The plan's result and its trace's events: (device, kind, call, begin s, end s)."""
    with tempfile.TemporaryDirectory() as folder:
        plan, trace = f"{folder}/plan.yaml", f"{folder}/trace.json"
        found = subprocess.run([braid, "plan", CONFIG, "--max-units", "20", "--out", plan, "--json"], check=True, capture_output=True)
        subprocess.run([braid, "simulate", CONFIG, "--plan", plan, "--trace", trace], check=True, capture_output=True)
        events = [e for e in json.loads(Path(trace).read_text())["traceEvents"] if e["ph"] == "X"]
    return json.loads(found.stdout), [(e["pid"], e["cat"], e["name"].split()[0], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6) for e in events]


def merged(spans, apart):
    """Spans that lie at most so far apart become one."""
    out = []
    for begin, end in sorted(spans):
        if out and begin - out[-1][1] <= apart:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def bars(events, device, x):
    """One row: what the device computes, and below it what moves to or from it."""
    y, out = TOP + ROW * device, []
    for index, name in enumerate(NAMES):
        for kind in ("forward", "backward", ""):
            kinds = [kind] if kind else [k for k in PASSES if k not in ("forward", "backward")]
            for begin, end in merged([e[3:] for e in events if e[0] == device and e[2] == name and e[1] in kinds], 0):
                shade = ' opacity="0.72"' if kind == "backward" else ""
                out.append(f'<rect class="c{index}" x="{x(begin):.1f}" y="{y}" width="{max(x(end) - x(begin), 0.4):.1f}" height="{BAR}"{shade}/>')
    for begin, end in merged([e[3:] for e in events if e[0] == device and e[1] == "reallocation"], 0.02):
        out.append(f'<rect class="move" x="{x(begin):.1f}" y="{y + BAR + 2}" width="{max(x(end) - x(begin), 1):.1f}" height="{THIN}"/>')
    return out


def labels(events, x):
    """The name of each call, once, in the middle of the devices that run it."""
    out = []
    for name in NAMES:
        own = [e for e in events if e[2] == name and e[1] in PASSES]
        rows = sorted({e[0] for e in own})
        middle = (min(e[3] for e in own) + max(e[4] for e in own)) / 2
        y = TOP + ROW * (rows[0] + rows[-1]) / 2 + BAR / 2 + 4
        if len(rows) % 2 == 0:
            y -= ROW / 2
        out.append(f'<text class="in" x="{x(middle):.1f}" y="{y:.1f}" text-anchor="middle">{name}</text>')
    return out


def drawing(found, events):
    devices, step = 1 + max(e[0] for e in events), found["step_s"]
    x = lambda seconds: LEFT + (WIDTH - LEFT - RIGHT) * seconds / step
    height, floor = TOP + ROW * devices + BOTTOM, TOP + ROW * devices
    out = [f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>', f'<text class="title" x="{LEFT}" y="28">{TITLE}</text>']
    for device in range(devices):
        y = TOP + ROW * device
        out += [f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{BAR}"/>', f'<text class="small" x="{LEFT - 8}" y="{y + 14}" text-anchor="end">GPU {device}</text>']
    for second in range(0, int(step) + 1, 5):
        out += [f'<line class="grid" x1="{x(second):.1f}" x2="{x(second):.1f}" y1="{TOP - 4}" y2="{floor}"/>', f'<text class="small" x="{x(second):.1f}" y="{floor + 14}" text-anchor="middle">{second} s</text>']
    host = found["host_s"]
    out += [f'<rect class="host" x="{x(0):.1f}" y="{TOP}" width="{x(host) - x(0):.1f}" height="{ROW * devices - ROW + BAR}"/>',
            f'<text class="small" x="{x(host / 2):.1f}" y="{TOP + ROW * devices / 2:.0f}" text-anchor="middle">host: data, logging</text>']
    for device in range(devices):
        out += bars(events, device, x)
    out += labels(events, x)
    out += [f'<text class="small" x="{LEFT}" y="{floor + 38}">A step of {step:.3f} s. GPUs compute for {100 * found["utilisation"]:.0f} % of it; the fullest one holds {found["peak_gib"]:.1f} of {found["limit_gib"]:.1f} GiB.</text>',
            f'<text class="small" x="{LEFT}" y="{floor + 56}">No plan of the search space takes less than {found["lower_bound_s"]:.3f} s. Shaded: backward passes. Ticks below: weights that move.</text>']
    return height, out


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    braid, target = arguments
    height, body = drawing(*plan_and_trace(braid))
    colours = lambda values: " ".join(f".c{i} {{ fill: {value} }}" for i, value in enumerate(values))
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{TITLE}">',
            f"<style>{STYLE}\n{colours(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {STYLE_DARK}\n{colours(DARK)} }}</style>"]
    text = "\n".join([*head, *body, "</svg>"]) + "\n"
    if "--check" not in sys.argv:
        Path(target).write_text(text)
    elif Path(target).read_text() != text:
        sys.exit(f"{target} shows another plan than braid finds now; tools/make_docs.sh {braid} draws it again")


if __name__ == "__main__":
    main()
