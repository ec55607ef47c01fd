#include "data/dataset.h"

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "data/record.h"
#include "host/file.h"

namespace braid {
namespace {

constexpr uint64_t kShuffleStream = 0x5af1, kTaskStream = 0x7a5c;
constexpr int64_t kTaskLines = 4096;
constexpr int64_t kMaxTaskLines = 1'000'000;

// A pseudo-random permutation of 0 .. n-1: a Feistel network on the next power of four, walked
// until it lands inside (cycle walking; Black & Rogaway, 2002).
int64_t permuted(int64_t index, int64_t count, uint64_t seed) {
  int half_bits = 1;
  while ((int64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (random_u64(seed, kShuffleStream + round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

std::string digits_or_letters(RandomStream& random, int64_t length, char first, int64_t choices) {
  std::string out;
  for (int64_t i = 0; i < length; ++i) out += static_cast<char>(first + random.below(choices));
  return out;
}

// One small mistake: a character left out, repeated, put in, replaced, or swapped with its
// neighbour.
std::string with_mistake(std::string answer, RandomStream& random) {
  const char first = answer[0] >= 'a' ? 'a' : '0';
  const auto other = [&] {
    return static_cast<char>(first + random.below(first == 'a' ? 26 : 10));
  };
  const size_t place = random.below(answer.size());
  switch (answer.size() > 1 ? random.below(5) : 2 + random.below(2)) {
    case 0:
      answer.erase(place, 1);
      break;
    case 1:
      answer.insert(place, 1 + random.below(3), answer[place]);
      break;
    case 2:
      answer.insert(answer.begin() + static_cast<int64_t>(place), other());
      break;
    case 3:
      answer[place] = other();
      break;
    default:
      std::swap(answer[place], answer[place == 0 ? 1 : place - 1]);
  }
  return answer;
}

// A wrong answer near the right one: one mistake or two, as a policy makes them that has learnt a
// little; to sort_digits most of them are in order.
std::string corrupted(const std::string& task, const std::string& answer, RandomStream& random) {
  std::string wrong = answer;
  while (wrong == answer) {
    wrong = with_mistake(answer, random);
    if (random.below(2) == 1) wrong = with_mistake(wrong, random);
    if (task == "sort_digits" && random.below(4) != 0) std::sort(wrong.begin(), wrong.end());
  }
  return wrong;
}

Json task_line(const std::string& name, RandomStream& random) {
  const auto length = static_cast<int64_t>(3 + random.below(4));
  if (name == "reverse") {
    const std::string word = digits_or_letters(random, length, 'a', 26);
    return {{"prompt", "reverse " + word + "="},
            {"label", std::string(word.rbegin(), word.rend())}};
  }
  std::string digits = digits_or_letters(random, length, '0', 10);
  if (name == "sum_digits") {
    int total = 0;
    for (const char c : digits) total += c - '0';
    return {{"prompt", "sum " + digits + "="}, {"label", std::to_string(total)}};
  }
  const std::string prompt = "sort " + digits + "=";
  std::sort(digits.begin(), digits.end());
  return {{"prompt", prompt}, {"label", digits}};
}

}  // namespace

const DataRecord& DataSet::at(int64_t position) const {
  const int64_t index = position % size();
  return records_[shuffle_ ? permuted(index, size(), mix_seed(seed_, epoch(position))) : index];
}

Result<DataSet> make_data_set(const std::vector<Json>& lines, const std::string& where,
                              DataNeed need, const Tokenizer* tokenizer, const DataConfig& config) {
  DataSet out;
  out.shuffle_ = config.shuffle;
  out.seed_ = static_cast<uint64_t>(config.seed);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].is_discarded()) continue;
    const std::string place = cat(where, ":", i + 1);
    BRAID_ASSIGN(DataRecord record, make_record(lines[i], need, tokenizer, config).at(place));
    const auto length = static_cast<int64_t>(record.prompt_ids.size());
    ++out.lines_;
    if (length > config.max_prompt_length) {
      if (config.overlong == "error")
        return invalid_input(cat(
            place, ": the prompt has ", length, " tokens, more than data.max_prompt_length = ",
            config.max_prompt_length, "; raise it, or set data.overlong to drop or truncate_left"));
      if (config.overlong == "drop") {
        ++out.dropped_;
        continue;
      }
      record.prompt_ids.erase(record.prompt_ids.begin(),
                              record.prompt_ids.end() - config.max_prompt_length);
      ++out.truncated_;
    }
    out.records_.push_back(std::move(record));
  }
  if (out.records_.empty()) return invalid_input(cat(where, ": no usable line"));
  return out;
}

Result<std::vector<Json>> parse_jsonl(std::string_view text, const std::string& where) {
  std::vector<Json> out;
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) {
      out.emplace_back(Json::value_t::discarded);
      continue;
    }
    BRAID_ASSIGN(Json parsed, parse_json(line, cat(where, ":", number)));
    out.push_back(std::move(parsed));
  }
  return out;
}

Result<std::vector<Json>> task_lines(const std::string& name, int64_t count, uint64_t seed) {
  const std::vector<std::string> names = {"sort_digits", "reverse", "sum_digits"};
  if (std::find(names.begin(), names.end(), name) == names.end())
    return invalid_input(cat("task:", name, ": unknown task", did_you_mean(name, names),
                             "; known: ", join(names, ", ")));
  RandomStream random(seed, kTaskStream);
  std::vector<Json> out;
  for (int64_t i = 0; i < count; ++i) {
    Json line = task_line(name, random);
    line["chosen"] = line["label"];
    line["rejected"] = corrupted(name, line["label"], random);
    out.push_back(std::move(line));
  }
  return out;
}

namespace {

// Lines of "task:NAME" or "task:NAME:COUNT".
Result<std::vector<Json>> generated_lines(const std::string& source, uint64_t seed) {
  const std::vector<std::string> parts = split(source, ':');
  int64_t count = kTaskLines;
  const bool counted = parts.size() == 3 && parse_int(parts[2], &count);
  if (parts.size() > 2 && (!counted || count < 1 || count > kMaxTaskLines))
    return invalid_input(cat(source, ": a number of lines from 1 to ", kMaxTaskLines,
                             " is wanted after the name of the task"));
  return task_lines(parts[1], count, seed);
}

}  // namespace

Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config) {
  if (source.empty())
    return invalid_input("data.train: no data given; name a JSONL file or task:NAME");
  std::vector<Json> lines;
  if (source.rfind("task:", 0) == 0) {
    BRAID_ASSIGN(lines, generated_lines(source, static_cast<uint64_t>(config.seed)));
  } else {
    BRAID_ASSIGN(const std::string text, read_file(source));
    BRAID_ASSIGN(lines, parse_jsonl(text, source));
  }
  return make_data_set(lines, source, need, tokenizer, config);
}

}  // namespace braid
