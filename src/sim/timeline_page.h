// The HTML page of a timeline: draws the JSON object that stands in place of @DATA@ on canvases,
// one row per device and link that was used, with zoom by wheel, drag, and a line about what is
// under the pointer.
#pragma once

namespace braid::inline sim {

inline constexpr char kTimelinePage[] = R"html(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Braid timeline</title>
<style>
body { font: 13px sans-serif; margin: 12px; color: #222; background: #fff; }
h1 { font-size: 16px; } pre { background: #f5f5f5; padding: 8px; }
#tip { position: sticky; top: 0; background: #fff; height: 20px; padding: 4px 0; }
canvas { display: block; cursor: grab; }
.legend span { display: inline-block; margin-right: 14px; }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 4px; vertical-align: -2px; }
</style></head><body>
<h1 id="title"></h1><div class="legend" id="legend"></div><div id="tip">Wheel zooms, drag moves.</div>
<canvas id="view"></canvas><h1>Memory</h1><canvas id="memory"></canvas><pre id="summary"></pre>
<script>
const data = @DATA@;
const colours = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#bbbbbb",
                 "#332288", "#117733", "#882255", "#44aa99"];
const colour = call => call < 0 ? "#999" : colours[call % colours.length];
const byId = id => document.getElementById(id);
byId("title").textContent = data.title;
byId("summary").textContent = data.summary;
data.calls.forEach((name, i) => {
  const entry = document.createElement("span"), box = document.createElement("i");
  box.style.background = colour(i);
  entry.append(box, name);
  byId("legend").append(entry);
});
const rows = [], rowOf = new Map();
for (const e of [...data.events].sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
  const key = e[0] + ":" + e[1];
  if (!rowOf.has(key)) { rowOf.set(key, rows.length); rows.push("device " + e[0] + " " + data.tracks[e[1]]); }
}
const left = 150, height = 16, view = byId("view"), pen = view.getContext("2d");
let from = 0, to = data.step_s || 1;
const x = t => left + (t - from) / (to - from) * (view.width - left);
function draw() {
  view.width = Math.max(600, document.body.clientWidth);
  view.height = rows.length * height + 20;
  pen.font = "11px sans-serif";
  for (const e of data.events) {
    const a = Math.max(left, x(e[2])), b = Math.min(view.width, x(e[3]));
    if (b < left || a > view.width) continue;
    const y = rowOf.get(e[0] + ":" + e[1]) * height;
    pen.fillStyle = colour(e[4]);
    pen.globalAlpha = e[1] === 0 ? 1 : 0.6;
    pen.fillRect(a, y + 1, Math.max(b - a, 0.5), height - 2);
    pen.globalAlpha = 1;
    if (b - a > 7 * e[5].length) { pen.fillStyle = "#fff"; pen.fillText(e[5], a + 3, y + 12); }
  }
  pen.fillStyle = "#222";
  rows.forEach((name, i) => pen.fillText(name, 2, i * height + 12));
  for (let i = 0; i <= 8; ++i) {
    const t = from + (to - from) * i / 8;
    pen.fillText(t.toPrecision(4) + " s", Math.min(x(t), view.width - 60), rows.length * height + 14);
  }
  drawMemory();
}
function drawMemory() {
  const canvas = byId("memory"), p = canvas.getContext("2d");
  canvas.width = view.width; canvas.height = 220;
  let most = 1;
  for (const m of data.memory) { most = Math.max(most, m.limit); for (const q of m.points) most = Math.max(most, q[1]); }
  const y = bytes => 200 - bytes / most * 190;
  data.memory.forEach((m, i) => {
    p.strokeStyle = colours[i % colours.length];
    p.beginPath();
    let last = 200;
    for (const [t, bytes] of m.points) { p.lineTo(x(t), last); last = y(bytes); p.lineTo(x(t), last); }
    p.stroke();
  });
  if (data.memory.length) {
    p.strokeStyle = "#c00"; p.setLineDash([4, 4]);
    p.beginPath(); p.moveTo(left, y(data.memory[0].limit)); p.lineTo(canvas.width, y(data.memory[0].limit)); p.stroke();
    p.setLineDash([]); p.fillText("limit " + (data.memory[0].limit / 1073741824).toFixed(1) + " GiB", 2, y(data.memory[0].limit) + 4);
  }
}
function at(event) { return from + (event.offsetX - left) / (view.width - left) * (to - from); }
view.addEventListener("wheel", event => {
  event.preventDefault();
  const t = at(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
  from = t - (t - from) * factor; to = t + (to - t) * factor; draw();
}, { passive: false });
let grabbed = null;
view.addEventListener("mousedown", event => { grabbed = at(event); });
window.addEventListener("mouseup", () => { grabbed = null; });
view.addEventListener("mousemove", event => {
  if (grabbed !== null) { const shift = grabbed - at(event); from += shift; to += shift; draw(); return; }
  const row = Math.floor(event.offsetY / height), t = at(event);
  const hit = data.events.find(e => rowOf.get(e[0] + ":" + e[1]) === row && e[2] <= t && t <= e[3]);
  byId("tip").textContent = hit
    ? rows[row] + ": " + hit[5] + ", " + hit[2].toPrecision(5) + " s to " + hit[3].toPrecision(5) + " s" +
      (hit[6] >= 0 ? ", peer " + hit[6] : "") + (hit[7] > 0 ? ", " + (hit[7] / 1048576).toFixed(1) + " MiB" : "")
    : "";
});
window.addEventListener("resize", draw);
draw();
</script></body></html>
)html";

}  // namespace braid::inline sim
