#include "report/run_page.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "host/file.h"
#include "report/run_page_html.h"

namespace braid::inline report {
namespace {

constexpr size_t kMostSamples = 400;  // of a run, spread over its steps

// [step, value] of each metric; rows that lack it are left out.
Json columns_of(const std::vector<Json>& rows) {
  std::map<std::string, Json> out;
  for (const Json& row : rows) {
    const int64_t step = row.value("step", int64_t{0});
    for (const auto& [name, value] : row.items())
      if (name != "step" && value.is_number()) out[name].push_back(Json::array({step, value}));
  }
  return out;
}

// All of them, or as many as a page shows: evenly spread, first and last included.
Json spread(const std::vector<Json>& rows) {
  Json out = Json::array();
  const size_t shown = std::min(rows.size(), kMostSamples);
  for (size_t i = 0; i < shown; ++i) {
    const size_t at = shown == rows.size() ? i : i * (rows.size() - 1) / (shown - 1);
    Json row = rows[at];
    if (row.contains("response_ids")) row["tokens"] = row["response_ids"].size();
    row.erase("response_ids");
    out.push_back(std::move(row));
  }
  return out;
}

Json data_of(const RunRecord& run) {
  Json remarks = Json::array();
  for (const Finding& finding : findings(run))
    remarks.push_back({{"metric", finding.metric}, {"text", finding.text}});
  return {{"name", run.name},
          {"steps", run.metrics.back().value("step", int64_t{0}) + 1},
          {"total_steps", run.total_steps},
          {"metrics", columns_of(run.metrics)},
          {"samples", spread(run.samples)},
          {"samples_of", run.samples.size()},
          {"predicted", run.predicted},
          {"ranks", run.ranks},
          {"warnings", run.warnings},
          {"about", run.about},
          {"config", run.config},
          {"findings", remarks}};
}

Json limits_data() {
  Json out = Json::array();
  for (const FindingLimit& row : finding_limits())
    out.push_back(Json::array({row.what, row.limit}));
  return out;
}

// Text between <script> tags must not close them, and JSON may have any text.
std::string script_text(const Json& data) {
  std::string out;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace))
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

std::string replaced(std::string text, const std::string& mark, const std::string& by) {
  const size_t at = text.find(mark);
  BRAID_CHECK(at != std::string::npos, "the page has no place for its data");
  return text.replace(at, mark.size(), by);
}

}  // namespace

Json run_page_data(const std::vector<RunRecord>& runs) {
  Json out = Json::array();
  for (const RunRecord& run : runs) out.push_back(data_of(run));
  return out;
}

std::string run_page(const std::vector<RunRecord>& runs, const RunPageOptions& options) {
  const std::string refresh = options.refresh_s > 0 ? cat("<meta http-equiv=\"refresh\" content=\"",
                                                          options.refresh_s, "\">")
                                                    : "";
  // What runs wrote comes last: it may have a mark in it.
  const std::string page = replaced(std::string(kRunPageHtml), "<!--refresh-->", refresh);
  return replaced(replaced(page, "/*limits*/", script_text(limits_data())), "/*data*/",
                  script_text(run_page_data(runs)));
}

Status write_run_page(const std::string& folder) {
  BRAID_ASSIGN(const RunRecord run, read_run(folder));
  return write_file_atomic(join_path(folder, kRunPageName), run_page({run}, {}));
}

}  // namespace braid::inline report
