#include "foreign/resolve.h"

#include <algorithm>

#include "base/text.h"
#include "foreign/text.h"

namespace braid::inline foreign {
namespace {

constexpr int kDeepestReference = 16;

// "${.x}" of key "a.b.c" means "a.b.x"; each dot more goes up one level.
std::string absolute_name(const std::string& name, const std::string& key) {
  const size_t dots = std::min(name.find_first_not_of('.'), name.size());
  std::string base = key;
  for (size_t i = 0; i < dots; ++i) {
    const size_t dot = base.find_last_of('.');
    base = dot == std::string::npos ? "" : base.substr(0, dot);
  }
  const std::string rest = name.substr(dots);
  return dots == 0 || base.empty() ? rest : cat(base, ".", rest);
}

std::string unquoted(std::string_view text) {
  const std::string_view body = trim(text);
  const bool quotes =
      body.size() > 1 && body.front() == body.back() && (body[0] == '"' || body[0] == '\'');
  return std::string(quotes ? body.substr(1, body.size() - 2) : body);
}

class Resolver {
 public:
  explicit Resolver(const LookUp& look_up) : look_up_(look_up) {}

  std::string expand(const std::string& text, const std::string& key, int depth) const {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t begin = text.find("${", i);
      const size_t end = end_of_group(text, begin, '{', '}');
      if (end == std::string::npos) return out + text.substr(i);
      out += text.substr(i, begin - i);
      const auto value = value_of(text.substr(begin + 2, end - begin - 3), key, depth);
      out += value ? *value : text.substr(begin, end - begin);
      i = end;
    }
    return out;
  }

 private:
  std::optional<std::string> value_of(const std::string& body, const std::string& key,
                                      int depth) const {
    const std::string select = "oc.select:";
    if (body.rfind(select, 0) != 0) return named(std::string(trim(body)), key, depth);
    const std::string arguments = body.substr(select.size());
    const size_t comma = arguments.find(',');
    const auto found = named(std::string(trim(arguments.substr(0, comma))), key, depth);
    if (found && *found != "null") return found;
    return comma == std::string::npos ? "null" : unquoted(arguments.substr(comma + 1));
  }

  std::optional<std::string> named(const std::string& name, const std::string& key,
                                   int depth) const {
    const std::string target = absolute_name(name, key);
    const auto text = look_up_(target);
    if (!text || depth == kDeepestReference) return std::nullopt;
    return expand(*text, target, depth + 1);
  }

  const LookUp& look_up_;
};

}  // namespace

std::string resolve_reference(const std::string& text, const std::string& key,
                              const LookUp& look_up) {
  return Resolver(look_up).expand(text, key, 0);
}

ForeignKeys resolved(const ForeignKeys& keys) {
  const LookUp look_up = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = keys.find(name);
    if (found == keys.end()) return std::nullopt;
    return found->second;
  };
  ForeignKeys out = keys;
  for (auto& [key, text] : out)
    if (text.find("${") != std::string::npos) text = resolve_reference(text, key, look_up);
  return out;
}

}  // namespace braid::inline foreign
