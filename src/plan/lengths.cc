// Length distributions of a workload from YAML.
#include <cmath>

#include "base/encoding.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/yaml_check.h"
#include "plan/make_problem.h"

namespace braid::inline plan {
namespace {

constexpr int64_t kLongest = int64_t{1} << 31;
constexpr double kWidest = 5;  // of a lognormal's sigma: one length in six is 150 times the median

Result<double> positive(const YamlNode& node, const std::string& key) {
  double value = 0;
  if (node.kind != YamlNode::Kind::kScalar || !parse_double(node.scalar, &value) ||
      !std::isfinite(value) || value <= 0 || value > static_cast<double>(kLongest))
    return wrong_value(node, cat(key, " must be a positive number, is '", node.scalar, "'"));
  return value;
}

Result<LengthDistribution> read_file_lengths(const YamlNode& file, const ReadText& read) {
  LengthDistribution out;
  out.kind = LengthDistribution::Kind::kEmpirical;
  BRAID_ASSIGN(const std::string text, read(file.scalar).at(file.origin));
  BRAID_ASSIGN(out.samples, parse_lengths(text, file.scalar));
  out.mean = mean_tokens(out);
  return out;
}

Result<LengthDistribution> read_map(const YamlNode& node, const std::string& key,
                                    const ReadText& read) {
  for (const auto& [name, value] : node.map)
    if (name != "mean" && name != "sigma" && name != "longest" && name != "file")
      return wrong_value(value,
                         cat("unknown key '", key, ".", name,
                             "'; a length is a number, {mean, sigma, longest} or {file, longest}"));
  const YamlNode *mean = node.find("mean"), *sigma = node.find("sigma"), *file = node.find("file");
  LengthDistribution out;
  if (file != nullptr) {
    if (mean != nullptr || sigma != nullptr)
      return wrong_value(node, cat(key, ": file excludes mean and sigma"));
    BRAID_ASSIGN(out, read_file_lengths(*file, read));
  } else {
    if (mean == nullptr) return wrong_value(node, cat(key, ".mean is missing (tokens)"));
    BRAID_ASSIGN(out.mean, positive(*mean, key + ".mean"));
    if (sigma != nullptr) {
      out.kind = LengthDistribution::Kind::kLognormal;
      BRAID_ASSIGN(out.sigma, positive(*sigma, key + ".sigma"));
      if (out.sigma > kWidest)
        return wrong_value(
            *sigma, cat(key, ".sigma: the logarithm's standard deviation; at most ",
                        format_double(kWidest), ", is ", sigma->scalar, "; 0.5 to 1.5 is usual"));
    }
  }
  if (const YamlNode* longest = node.find("longest")) {
    BRAID_ASSIGN(const double tokens, positive(*longest, key + ".longest"));
    out.longest = std::llround(tokens);
    if (file == nullptr && out.mean > tokens)
      return wrong_value(*longest, cat(key, ".longest: ", longest->scalar, " is below the mean of ",
                                       format_double(out.mean)));
  }
  return out;
}

}  // namespace

Result<std::vector<int64_t>> parse_lengths(std::string_view text, const std::string& where) {
  std::vector<int64_t> lengths;
  int line = 0;
  for (const std::string& raw : split(without_byte_order_mark(text), '\n')) {
    ++line;
    const std::string_view value = trim(raw);
    if (value.empty()) continue;
    int64_t length = 0;
    if (!parse_int(value, &length) || length < 1 || length > kLongest)
      return invalid_input(cat(where, ":", line,
                               ": a length must be a whole number of tokens, is '", excerpt(value),
                               "'"));
    lengths.push_back(length);
  }
  if (lengths.empty())
    return invalid_input(cat(where, ": holds no lengths; write one number of tokens per line"));
  return lengths;
}

Status check_length_limit(const LengthDistribution& lengths, const std::string& key, int64_t limit,
                          const std::string& limit_key) {
  const auto refuse = [&](const std::string& what) {
    return invalid_input(cat(key, ": ", what, " is above ", limit_key, " = ", limit,
                             "; lower it or raise the limit"));
  };
  if (lengths.longest > limit) return refuse(cat("longest ", lengths.longest));
  if (lengths.samples.empty())
    return lengths.mean > static_cast<double>(limit)
               ? refuse(cat("a mean of ", format_double(lengths.mean)))
               : ok_status();
  if (lengths.longest > 0) return ok_status();
  for (size_t i = 0; i < lengths.samples.size(); ++i)
    if (lengths.samples[i] > limit)
      return refuse(cat("length ", i + 1, " of the file (", lengths.samples[i], " tokens)"));
  return ok_status();
}

Result<LengthDistribution> read_lengths(const YamlNode& node, const std::string& key,
                                        int64_t fallback, const ReadText& read) {
  LengthDistribution out;
  if (node.kind == YamlNode::Kind::kNull) {
    out.mean = static_cast<double>(fallback);
    return out;
  }
  if (node.kind == YamlNode::Kind::kMap) return read_map(node, key, read);
  BRAID_ASSIGN(out.mean, positive(node, key));
  return out;
}

}  // namespace braid::inline plan
