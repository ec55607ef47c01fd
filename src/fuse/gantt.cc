#include "fuse/gantt.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace braid::inline fuse {
namespace {

constexpr double kLeft = 70, kWidth = 1200, kRow = 22, kGap = 26, kMemoryRow = 44;

// A hue per pipeline: forwards light, backwards dark, weight gradients in between.
std::string color(const PipelineOp& op) {
  static constexpr std::array<int, 8> kHues = {210, 25, 140, 285, 50, 330, 180, 95};
  static constexpr std::array<int, 3> kLight = {72, 46, 60};
  return cat("hsl(", kHues[size_t(op.pipeline) % kHues.size()], ",60%,",
             kLight[static_cast<size_t>(op.kind)], "%)");
}

std::string coordinate(double value) { return format_double(std::round(value * 100) / 100); }

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string rectangle(double x, double y, double width, double height, const std::string& fill) {
  return cat("<rect x=\"", coordinate(x), "\" y=\"", coordinate(y), "\" width=\"",
             coordinate(width), "\" height=\"", coordinate(height), "\" fill=\"", fill, "\"");
}

std::string label(double x, double y, const std::string& text) {
  return cat("<text x=\"", coordinate(x), "\" y=\"", coordinate(y), "\">", escaped(text),
             "</text>\n");
}

class Picture {
 public:
  Picture(const PipelineProblem& problem, const PipelineTimeline& timeline)
      : problem_(problem), timeline_(timeline) {
    const double end = makespan(timeline);
    scale_ = end > 0 ? kWidth / end : 0;
    for (const double peak : peak_memory(problem, timeline)) most_ = std::max(most_, peak);
    if (problem.memory_limit) most_ = std::max(most_, *problem.memory_limit);
  }

  std::string draw() const {
    const double nodes = double(timeline_.size());
    const double memory_top = kGap + nodes * kRow + 2 * kGap;
    const double height = memory_top + nodes * (kMemoryRow + 6) + kGap;
    std::string out = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ",
                          coordinate(kLeft + kWidth + 20), " ", coordinate(height),
                          "\" font-family=\"sans-serif\" font-size=\"11\">\n");
    // On a dark page too.
    out += rectangle(0, 0, kLeft + kWidth + 20, height, "#fff") + "/>\n";
    out += label(kLeft, 16, cat("0 to ", format_double(makespan(timeline_)), "; ", legend()));
    for (size_t node = 0; node < timeline_.size(); ++node) {
      const double y = kGap + double(node) * kRow;
      out += label(4, y + 15, cat("node ", node));
      for (const TimedPipelineOp& timed : timeline_[node]) out += cell(timed, y);
    }
    out += label(kLeft, memory_top - 8, memory_title());
    for (size_t node = 0; node < timeline_.size(); ++node)
      out += memory_curves(node, memory_top + double(node) * (kMemoryRow + 6));
    return out + "</svg>\n";
  }

 private:
  std::string legend() const {
    std::vector<std::string> names;
    for (const Pipeline& pipeline : problem_.pipelines) names.push_back(pipeline.name);
    return cat(join(names, ", "), ": forward light, backward dark");
  }

  std::string memory_title() const {
    return cat("memory of each node, pipelines stacked; full height is ", format_double(most_),
               problem_.memory_limit ? cat("; limit ", format_double(*problem_.memory_limit))
                                     : std::string());
  }

  std::string cell(const TimedPipelineOp& timed, double y) const {
    const double width = (timed.end - timed.start) * scale_;
    std::string out = rectangle(kLeft + timed.start * scale_, y, width, kRow - 3, color(timed.op));
    out += cat(" stroke=\"#fff\" stroke-width=\"0.4\"><title>",
               escaped(describe(problem_, timed.op)), ", ", format_double(timed.start), " to ",
               format_double(timed.end), "</title></rect>\n");
    if (width >= 12)
      out += label(kLeft + timed.start * scale_ + 2, y + 14, cat(timed.op.micro_batch));
    return out;
  }

  // Areas from the top pipeline's sum down to the first's, so that each hides what is below it.
  std::string memory_curves(size_t node, double y) const {
    std::string out = label(4, y + kMemoryRow - 4, cat("node ", node));
    for (size_t count = problem_.pipelines.size(); count > 0; --count) {
      const std::string fill = color({int32_t(count - 1), 0, 0, PassKind::kForward});
      out += cat("<path fill=\"", fill, "\" d=\"", area(node, count, y + kMemoryRow), "\"/>\n");
    }
    if (problem_.memory_limit && most_ > 0) {
      const double line = y + kMemoryRow * (1 - *problem_.memory_limit / most_);
      out += rectangle(kLeft, line, kWidth, 0.8, "#c00") + "/>\n";
    }
    return out;
  }

  // The memory that the first `count` pipelines hold on a node.
  std::string area(size_t node, size_t count, double base) const {
    std::vector<std::pair<double, double>> events;  // time, change
    for (const TimedPipelineOp& timed : timeline_[node]) {
      if (size_t(timed.op.pipeline) >= count) continue;
      const Pipeline& pipeline = problem_.pipelines[timed.op.pipeline];
      const PassKind last = pipeline.split_backward() ? PassKind::kWeight : PassKind::kBackward;
      const double memory = pipeline.memory[timed.op.stage];
      if (timed.op.kind == PassKind::kForward) events.emplace_back(timed.start, memory);
      if (timed.op.kind == last) events.emplace_back(timed.end, -memory);
    }
    std::sort(events.begin(), events.end());
    std::string path = cat("M", coordinate(kLeft), " ", coordinate(base));
    double held = 0;
    for (const auto& [time, change] : events) {
      held += change;
      const double height = most_ > 0 ? std::max(held, 0.0) / most_ * kMemoryRow : 0;
      path += cat("H", coordinate(kLeft + time * scale_), "V", coordinate(base - height));
    }
    return path + cat("V", coordinate(base), "Z");
  }

  const PipelineProblem& problem_;
  const PipelineTimeline& timeline_;
  double scale_ = 0;
  double most_ = 0;
};

}  // namespace

std::string timeline_svg(const PipelineProblem& problem, const PipelineTimeline& timeline) {
  return Picture(problem, timeline).draw();
}

std::string timeline_page(const PipelineProblem& problem, const PipelineTimeline& timeline,
                          const std::string& title) {
  const std::vector<double> peaks = peak_memory(problem, timeline);
  std::string rows;
  for (size_t node = 0; node < timeline.size(); ++node) {
    double busy = 0;
    for (const TimedPipelineOp& timed : timeline[node]) busy += timed.end - timed.start;
    const double end = makespan(timeline);
    rows += cat("<tr><td>", node, "</td><td>", timeline[node].size(), "</td><td>",
                format_double(end > 0 ? std::round(1000 * busy / end) / 10 : 0), " %</td><td>",
                format_double(peaks[node]), "</td></tr>\n");
  }
  return cat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
             escaped(title), "</title><style>body{font-family:sans-serif;margin:1em}td,th",
             "{padding:2px 12px;text-align:right}</style></head><body>\n<h1>", escaped(title),
             "</h1>\n<p>Makespan ", format_double(makespan(timeline)), ".</p>\n",
             timeline_svg(problem, timeline),
             "<table><tr><th>node</th><th>ops</th><th>busy</th><th>peak memory</th></tr>\n", rows,
             "</table>\n</body></html>\n");
}

}  // namespace braid::inline fuse
