#!/usr/bin/env python3
"""Opens a page of 'braid report' in headless Chromium at two widths and says what is wrong with it: errors of its script, sections
that are empty, content that is wider than the window or than its card, and text squeezed to a letter a line. Exit code 1 where something
is; 77 where there is no Chromium.
Usage: look_at_report.py PAGE.html [--says TEXT] [--shot OUT.png [--height PIXELS]]"""
import argparse
import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = (1400, 420)
SECTIONS = ("head", "findings", "learning-charts", "time-charts", "timelines", "prediction-charts", "length-charts", "memory-charts",
            "owner-charts", "sample-table", "config-table")
BEFORE = '<script>window.onerror = (text, file, line) => { document.documentElement.dataset.error = text + " (line " + line + ")"; };</script>'
AFTER = """<script>
document.documentElement.dataset.width = document.documentElement.scrollWidth;
document.documentElement.dataset.window = window.innerWidth;
document.documentElement.dataset.empty = %s.filter(id => !document.getElementById(id).children.length).join(" ");
const named = (what, nodes) => nodes.map(node => what + " '" + node.textContent.slice(0, 30) + "'").join(", ");
document.documentElement.dataset.cut = named("cut off:", [...document.querySelectorAll("nav, p, td, th, h3, .card, .card div")]
  .filter(node => node.clientWidth && node.scrollWidth > node.clientWidth + 1 && !node.querySelector("pre")));
document.documentElement.dataset.squeezed = named("squeezed:", [...document.querySelectorAll("td, th")]
  .filter(node => node.textContent.trim().length > 2 && node.clientWidth && node.clientHeight > 6 * node.clientWidth));
document.documentElement.dataset.unsaid = %s.filter(text => !document.body.innerText.includes(text)).join(", ");
</script>"""
# Chromium's windows are no narrower than 500 pixels, frames are.
FRAMED = """<body><iframe width="%d" height="1200" srcdoc="%s"></iframe><script>
document.querySelector("iframe").onload = loaded => Object.assign(document.documentElement.dataset, loaded.target.contentDocument.documentElement.dataset);
</script></body>"""


def chromium():
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


def run(program, page, width, more):
    with tempfile.TemporaryDirectory() as profile:
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
                   "--virtual-time-budget=3000", *more, page.as_uri()]
        command.insert(-1, f"--window-size={width}," + ("1200" if not any(m.startswith("--screenshot") for m in more) else HEIGHT))
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def mistakes(program, text, folder, width, empty_allowed, says):
    page = folder / "page.html"
    looked_at = text.replace("<head>", "<head>" + BEFORE, 1).replace("</body>", AFTER % (list(SECTIONS), says) + "</body>", 1)
    page.write_text("<html><head></head>" + FRAMED % (width, html.escape(looked_at)) + "</html>")
    dom = run(program, page, width + 40, ["--dump-dom"])
    found = dict(re.findall(r'data-(error|width|window|empty|cut|squeezed|unsaid)="([^"]*)"', dom[:dom.find("<head>") + 1]))
    if "empty" not in found:
        return [f"at {width} pixels: the page did not load"]
    out = [f"at {width} pixels: {found['error']}"] if "error" in found else []
    empty = [name for name in found["empty"].split() if name not in empty_allowed]
    if empty:
        out.append(f"at {width} pixels: nothing in {', '.join(empty)}")
    if found["unsaid"]:
        out.append(f"at {width} pixels: does not say {found['unsaid']}")
    if int(found["width"]) > int(found["window"]):
        out.append(f"at {width} pixels: content is {found['width']} wide")
    return out + [f"at {width} pixels: {html.unescape(found[what])}" for what in ("cut", "squeezed") if found[what]]


def main():
    global HEIGHT
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page")
    parser.add_argument("--shot", help="also take a picture, at the first width")
    parser.add_argument("--width", type=int, default=WIDTHS[0], help="of the picture")
    parser.add_argument("--height", default="1600", help="of the picture")
    parser.add_argument("--empty", default="", help="sections that may be empty, with commas between")
    parser.add_argument("--says", action="append", default=[], help="what the page must show; may be given again")
    arguments = parser.parse_args()
    HEIGHT = arguments.height
    program = chromium()
    if program is None:
        print("there is no Chromium here")
        sys.exit(77)
    text = pathlib.Path(arguments.page).read_text()
    with tempfile.TemporaryDirectory() as folder:
        found = [m for width in WIDTHS for m in mistakes(program, text, pathlib.Path(folder), width, arguments.empty.split(","), arguments.says)]
    if arguments.shot:
        run(program, pathlib.Path(arguments.page).resolve(), arguments.width, [f"--screenshot={pathlib.Path(arguments.shot).resolve()}"])
    print("\n".join(found) or "the page is complete at both widths")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
