#!/usr/bin/env python3
"""Draws how the weights of the actor move from the layout of training to that of generation, an SVG, for examples/cluster/two_ranks.plan.yaml.
Who sends which layers to whom, and how many bytes, is what `braid train --print-program` prints. Its colours follow the reader's light or dark
setting.

Usage: plot_weights.py BRAID OUT.svg [--check]     --check writes nothing and fails where OUT.svg is another
"""
import re
import subprocess
from pathlib import Path

from plot_graph import DARK, STYLE, main

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ["train", "examples/cluster/grpo.yaml", "plan.file=examples/cluster/two_ranks.plan.yaml", "--print-program"]
OF_LAYERS = 1  # a tensor that every layer has
CELL_W, CELL_H, GAP, LEFT, TOP = 108, 26, 260, 84, 78


def messages(braid):
    """[(sender, receiver, size, layers)] of the actor's weights."""
    text = subprocess.run([braid, *COMMAND], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    out, rank = [], 0
    for line in text.splitlines():
        if found := re.match(r"rank (\d+):", line):
            rank = int(found[1])
        if " reallocate " in line:
            for receiver, size, tensors in re.findall(r"; to (\d+) ([\d.]+ \w+)((?: tensor \d+\[[^\]]*\])+)", line):
                layers = sorted({int(layer) for layer in re.findall(rf"tensor {OF_LAYERS}\[layers (\d+)-", tensors)})
                out.append((rank, int(receiver), size, layers))
    return out


def stack(x, title, held, count, came):
    """The layers that a rank holds; those that came are framed."""
    out = [f'<text class="small" x="{x + CELL_W / 2:.0f}" y="{TOP - 10}">{title}</text>']
    for layer in range(count):
        style = "c0" if layer in held else "c3"
        frame = ' stroke="#57606a" stroke-dasharray="3 2"' if layer in came else ""
        y = TOP + layer * (CELL_H + 4)
        out.append(f'<rect class="{style}" x="{x}" y="{y}" width="{CELL_W}" height="{CELL_H}" rx="4"{frame}/>')
        if layer in held:
            out.append(f'<text class="small" x="{x + CELL_W / 2:.0f}" y="{y + 17}">layer {layer}</text>')
    return out


def picture(sent):
    ranks = sorted({sender for sender, _, _, _ in sent})
    home = {sender: layers for sender, _, _, layers in sent}
    count = 1 + max(layer for layers in home.values() for layer in layers)
    step = count * (CELL_H + 4) + 46
    width, height = LEFT + 2 * CELL_W + GAP + 24, TOP + len(ranks) * step - 10
    body, right = [], LEFT + CELL_W + GAP
    for at, rank in enumerate(ranks):
        came = [layer for _, receiver, _, layers in sent for layer in layers if receiver == rank]
        rows = [f'<text x="{LEFT / 2:.0f}" y="{TOP + count * (CELL_H + 4) / 2:.0f}">rank {rank}</text>',
                *stack(LEFT, "training: two stages", home[rank], count, []), *stack(right, "generation: whole copies", [*home[rank], *came], count, came)]
        body.append(f'<g transform="translate(0,{at * step})">{"".join(rows)}</g>')
    for sender, receiver, size, layers in sent:
        y0, y1 = (TOP + ranks.index(rank) * step + (layers[0] + layers[-1] + 1) / 2 * (CELL_H + 4) for rank in (sender, receiver))
        x0, x1 = LEFT + CELL_W + 4, right - 10
        body.append(f'<path d="M{x0},{y0:.0f} C{x0 + 110},{y0:.0f} {x1 - 110},{y1:.0f} {x1},{y1:.0f}"/><path class="head" d="M{x1 + 8},{y1:.0f} l-9,-4 v8 z"/>')
        body.append(f'<text class="small" x="{x0 + 44}" y="{y0 - 6 if y0 < y1 else y0 + 18:.0f}">{size}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    title = '<text class="left" x="16" y="30" style="font-weight: 600; font-size: 15px">Weights of the actor, from training to generation</text>'
    style = f"<style>{STYLE} @media (prefers-color-scheme: dark) {{ {DARK} }}</style>"
    return "\n".join([head, style, f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>', title, *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    main(lambda braid: picture(messages(braid)))
