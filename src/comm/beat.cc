#include "comm/beat.h"

#include <algorithm>
#include <cstdlib>

#include "base/number_runs.h"
#include "base/text.h"

namespace braid::inline comm {
namespace {

constexpr size_t kNamedRanks = 8;  // as many as one can read

void read_run(std::string_view text, std::vector<int64_t>* ranks) {
  const auto run = parse_number_run(text);
  for (int64_t i = 0; run && i < run->count(); ++i) ranks->push_back(run->first + i * run->stride);
}

std::string state_text(const std::optional<RankWait>& waits) {
  if (!waits) return "r";
  return cat("w", static_cast<int64_t>(waits->seconds), ":", number_runs(waits->peers));
}

// Of a STATE that begins with "w".
RankWait parse_wait(const std::string& state) {
  RankWait out;
  const size_t colon = state.find(':');
  int64_t number = 0;
  if (parse_int(state.substr(1, colon - 1), &number)) out.seconds = static_cast<double>(number);
  for (const std::string& run : split(state.substr(colon + 1), ',')) read_run(run, &out.peers);
  return out;
}

}  // namespace

std::string beat_key(int64_t rank) { return cat("beat/", rank); }

std::string beat_text(const Beat& beat) {
  return cat(beat.number, " ", beat.progress, " ", state_text(beat.waits), " ", beat.position);
}

Beat parse_beat(std::string_view text) {
  Beat out;
  std::string words[3];
  std::string_view rest = text;
  for (std::string& word : words) {
    const size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return {0, 0, {}, std::string(text)};
    word = rest.substr(0, blank);
    rest.remove_prefix(blank + 1);
  }
  int64_t progress = 0;
  const bool waits = words[2].rfind('w', 0) == 0 && words[2].find(':') != std::string::npos;
  if (!parse_int(words[0], &out.number) || !parse_int(words[1], &progress) ||
      !(waits || words[2] == "r"))
    return {0, 0, {}, std::string(text)};
  out.progress = static_cast<uint64_t>(progress);
  if (waits) out.waits = parse_wait(words[2]);
  out.position = rest;
  return out;
}

std::vector<std::string> last_positions(Store& store, const std::vector<int64_t>& ranks) {
  std::vector<std::string> keys, all, working;
  for (const int64_t rank : ranks) keys.push_back(beat_key(rank));
  const auto beats = store.look(keys);
  if (!beats.ok()) return {"the store does not answer"};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto& text = (*beats)[i];
    const Beat beat = parse_beat(text.value_or("never came"));
    all.push_back(cat("rank ", ranks[i], ": ", beat.position));
    if (!beat.waits) working.push_back(all.back());
  }
  if (all.size() <= kNamedRanks) return all;
  std::vector<std::string> out = working.empty() ? std::move(all) : std::move(working);
  const size_t more = out.size() - std::min(out.size(), kNamedRanks);
  out.resize(out.size() - more);
  if (more > 0) out.push_back(cat("and ", more, " more"));
  return out;
}

std::string last_position(Store& store, int64_t rank) {
  const auto beats = store.look({beat_key(rank)});
  return beats.ok() && (*beats)[0] ? parse_beat(*(*beats)[0]).position : "";
}

}  // namespace braid::inline comm
