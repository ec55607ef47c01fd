// Token ids of words that came before. Thread-safe: each shard has its own lock, and a full one
// takes no more words.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid::inline data {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// token text → value, searchable by views
template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;  // longer words rarely come again

  // Appends the ids of a word that is known. REQUIRES: a word that is not empty.
  bool find(std::string_view word, std::vector<int32_t>* out) {
    Shard& shard = shard_of(word);
    const std::lock_guard<std::mutex> lock(shard.mutex);
    const auto found = shard.words.find(word);
    if (found == shard.words.end()) return false;
    out->insert(out->end(), found->second.begin(), found->second.end());
    return true;
  }

  void insert(std::string_view word, const int32_t* first, const int32_t* last) {
    Shard& shard = shard_of(word);
    const std::lock_guard<std::mutex> lock(shard.mutex);
    if (shard.words.size() >= kWordsPerShard) return;
    shard.words.emplace(std::string(word), std::vector<int32_t>(first, last));
  }

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kWordsPerShard = 8192;

  struct Shard {
    std::mutex mutex;
    TextMap<std::vector<int32_t>> words;
  };
  Shard& shard_of(std::string_view word) {
    const auto last = static_cast<uint8_t>(word.back());
    return shards_[(word.size() * 7 + last) % kShards];
  }
  std::array<Shard, kShards> shards_;
};

}  // namespace braid::inline data
