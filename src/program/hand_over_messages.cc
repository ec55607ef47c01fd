#include "program/hand_over_messages.h"

#include <algorithm>
#include <set>

#include "base/tree_place.h"

namespace braid::inline program {
namespace {

// Ranks in the order of the tree's places.
std::vector<DeviceId> places_of(const CallPlacement& generate, const HandOver& before,
                                std::vector<DeviceId> speakers, int64_t ranks) {
  std::vector<DeviceId> out = std::move(speakers);
  std::set<DeviceId> placed(out.begin(), out.end());
  const auto place = [&](DeviceId rank) {
    if (placed.insert(rank).second) out.push_back(rank);
  };
  for (const DeviceId rank : ranks_going_on(generate, before)) place(rank);
  for (DeviceId rank{0}; rank.value < ranks; ++rank.value) place(rank);
  return out;
}

}  // namespace

std::vector<ToldMessage> counts_told(const CallPlacement& generate, const HandOver& before) {
  const std::vector<DeviceId> ranks = ranks_going_on(generate, before);
  std::vector<ToldMessage> out;
  for (size_t replica = 0; replica < before.goes_on.size(); ++replica) {
    if (!before.goes_on[replica]) continue;
    const auto number = static_cast<int64_t>(replica);
    const DeviceId speaker = speaker_of(generate, static_cast<int32_t>(replica));
    for (const DeviceId rank : ranks)
      if (rank != speaker) out.push_back({speaker, rank, {number, number + 1}});
  }
  return out;
}

Telling progress_told(const CallPlacement& generate, const HandOver& before, int64_t ranks) {
  Telling out;
  std::vector<DeviceId> speakers;
  std::vector<int64_t> behind = {0};  // numbers of the first so many speakers
  for (size_t replica = 0; replica < before.left.size(); ++replica) {
    const SampleRows& rows = before.left[replica];
    if (rows.empty()) continue;
    speakers.push_back(speaker_of(generate, static_cast<int32_t>(replica)));
    out.rows.insert(out.rows.end(), rows.begin(), rows.end());
    behind.push_back(std::ssize(out.rows));
  }
  if (speakers.empty()) return out;
  const auto speaking = static_cast<int>(speakers.size());
  const std::vector<DeviceId> places = places_of(generate, before, std::move(speakers), ranks);
  const auto size = static_cast<int>(places.size());
  for (int place = speaking - 1; place > 0; --place) {
    const TreePlace tree = tree_place(place, size);
    out.messages.push_back({places[place],
                            places[tree.parent],
                            {behind[place], behind[std::min(tree.end, speaking)]}});
  }
  for (int place = 1; place < size; ++place)
    out.messages.push_back(
        {places[tree_place(place, size).parent], places[place], {0, behind.back()}});
  return out;
}

}  // namespace braid::inline program
