// Filters on sequences as a whole: order, parts, joining.
#include <algorithm>

#include "base/text.h"
#include "jinja/access.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/markup.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

// A key in small letters unless case matters.
Value folded(Value key, bool case_sensitive) {
  return key.is_text() && !case_sensitive ? Value(lower(key.text())) : key;
}

// Sorts by keys, stably; items and keys belong together.
Result<std::vector<Value>> sorted_by(std::vector<std::pair<Value, Value>> keyed, bool reverse,
                                     Budget& budget) {
  Status failure;
  BRAID_TRY(budget.spend(keyed.size()));
  const auto before = [&](const auto& a, const auto& b) {
    if (!failure.ok()) return false;
    const Result<bool> smaller =
        reverse ? less(b.first, a.first, budget) : less(a.first, b.first, budget);
    if (!smaller.ok()) failure = smaller.status();
    return smaller.ok() && *smaller;
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  BRAID_TRY(failure);
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return out;
}

// The key of sort: one value for each of the paths that commas separate.
Result<Value> sort_key(const Value& item, const Value& attribute, bool case_sensitive) {
  std::vector<Value> paths = {attribute};
  if (attribute.is_text()) {
    paths.clear();
    for (const std::string& path : split(attribute.text(), ',')) paths.emplace_back(path);
  }
  std::vector<Value> out;
  for (const Value& path : paths) {
    BRAID_ASSIGN(Value key, get_path(item, path, Value()));
    out.push_back(folded(std::move(key), case_sensitive));
  }
  return Value::list(std::move(out));
}

Result<Value> sort_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(
      const Bound bound,
      Bound::bind("sort", arguments, {"value", "reverse", "case_sensitive", "attribute"}, 1));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    BRAID_ASSIGN(Value key, sort_key(item, bound.or_else(3, Value()), bound.truth(2, false)));
    keyed.emplace_back(std::move(key), item);
  }
  BRAID_ASSIGN(std::vector<Value> out, sorted_by(std::move(keyed), bound.truth(1, false), budget));
  return Value::list(std::move(out));
}

Result<Value> dictsort_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("dictsort", arguments, {"value", "case_sensitive", "by", "reverse"}, 1));
  BRAID_TRY(check_defined(bound.at(0)));
  if (!bound.at(0).is_dict()) return invalid_input("the value must be a dictionary");
  const Value by = bound.or_else(2, Value("key"));
  if (!by.is_text() || (by.text() != "key" && by.text() != "value"))
    return invalid_input("you can only sort by either \"key\" or \"value\"");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : bound.at(0).dict().items())
    keyed.emplace_back(folded(by.text() == "key" ? key : value, bound.truth(1, false)),
                       Value::tuple({key, value}));
  BRAID_ASSIGN(std::vector<Value> out, sorted_by(std::move(keyed), bound.truth(3, false), budget));
  return Value::list(std::move(out));
}

Result<Value> groupby_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(
      const Bound bound,
      Bound::bind("groupby", arguments, {"value", "attribute", "default", "case_sensitive"}, 2));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  const bool case_sensitive = bound.truth(3, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    BRAID_ASSIGN(Value key, get_path(item, bound.at(1), bound.or_else(2, Value())));
    Value real = key;
    keyed.emplace_back(folded(std::move(key), case_sensitive),
                       Value::tuple({std::move(real), item}));
  }
  BRAID_ASSIGN(const std::vector<Value> sorted, sorted_by(std::move(keyed), false, budget));
  std::vector<Value> groups, members;
  const auto close = [&](const Value& grouper) {
    groups.push_back(make_object<Group>(grouper, Value::list(std::exchange(members, {}))));
  };
  for (size_t i = 0; i < sorted.size(); ++i) {
    members.push_back(sorted[i].items()[1]);
    const Value here = sorted[i].items()[0];
    const Value first = sorted[i + 1 - members.size()].items()[0];
    if (i + 1 == sorted.size()) {
      close(first);
      continue;
    }
    BRAID_ASSIGN(const bool same, equal(folded(here, case_sensitive),
                                        folded(sorted[i + 1].items()[0], case_sensitive), budget));
    if (!same) close(first);
  }
  return Value::list(std::move(groups));
}

template <bool kGreatest>
Result<Value> extreme_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("min", arguments, {"value", "case_sensitive", "attribute"}, 1));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  std::optional<Value> best_key;
  size_t best = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    BRAID_ASSIGN(Value key, get_path(items[i], bound.or_else(2, Value()), Value()));
    key = folded(std::move(key), bound.truth(1, false));
    if (best_key) {
      BRAID_ASSIGN(const bool better,
                   kGreatest ? less(*best_key, key, budget) : less(key, *best_key, budget));
      if (!better) continue;
    }
    best_key = std::move(key);
    best = i;
  }
  return items[best];
}

Result<Value> unique_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("unique", arguments, {"value", "case_sensitive", "attribute"}, 1));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : items) {
    BRAID_ASSIGN(Value key, get_path(item, bound.or_else(2, Value()), Value()));
    key = folded(std::move(key), bound.truth(1, false));
    if (!is_hashable(key)) return invalid_input(cat("unhashable type: '", key.type_name(), "'"));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), Value());
    out.push_back(item);
  }
  return make_object<Generator>(std::move(out));
}

Result<Value> join_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("join", arguments, {"value", "d", "attribute"}, 1));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  BRAID_ASSIGN(const std::string separator, to_text(bound.or_else(1, Value("")), budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    BRAID_ASSIGN(const Value item, get_path(items[i], bound.or_else(2, Value()), Value()));
    BRAID_ASSIGN(const std::string text, to_text(item, budget));
    BRAID_TRY(budget.grow(out.size(), separator.size() + text.size()));
    if (i > 0) out += separator;
    out += text;
  }
  return Value(std::move(out));
}

Result<Value> first_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("first", arguments, {"seq"}, 1));
  if (auto* generator = bound.at(0).as<Generator>()) {
    BRAID_ASSIGN(const std::optional<Value> item, generator->next());
    return item ? *item : Value::undefined("No first item, sequence was empty.");
  }
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Status check_reversible(const Value& value) {
  if (is_iterable(value) && value.as<Generator>() == nullptr) return ok_status();
  return invalid_input(cat("'", value.type_name(), "' object is not reversible"));
}

Result<Value> last_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("last", arguments, {"seq"}, 1));
  BRAID_TRY(check_reversible(bound.at(0)));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  if (items.empty()) return Value::undefined("No last item, sequence was empty.");
  return marked_like(bound.at(0), items.back());
}

Result<Value> reverse_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("reverse", arguments, {"value"}, 1));
  if (bound.at(0).is_text()) {
    std::u32string points = to_code_points(bound.at(0).text());
    BRAID_TRY(budget.spend_text(points.size()));
    std::reverse(points.begin(), points.end());
    return marked_like(bound.at(0), Value(to_utf8(points)));
  }
  BRAID_ASSIGN(std::vector<Value> items, iterate(bound.at(0), budget));
  std::reverse(items.begin(), items.end());
  const bool is_list = bound.at(0).as<Generator>() != nullptr;
  return is_list ? Value::list(std::move(items)) : make_object<Generator>(std::move(items));
}

Result<Value> list_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("list", arguments, {"value"}, 1));
  BRAID_ASSIGN(std::vector<Value> items, iterate(bound.at(0), budget));
  return Value::list(std::move(items));
}

Result<Value> items_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("items", arguments, {"value"}, 1));
  if (bound.at(0).is_undefined()) return make_object<Generator>(std::vector<Value>());
  if (!bound.at(0).is_dict()) return invalid_input("can only get item pairs from a mapping");
  DictView view(bound.at(0).dict_ptr(), DictView::Part::kItems);
  BRAID_ASSIGN(std::vector<Value> items, view.iterate(budget));
  return make_object<Generator>(std::move(items));
}

Result<Value> sum_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("sum", arguments, {"iterable", "attribute", "start"}, 1));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  Value total = bound.or_else(2, Value(0));
  if (total.is_text()) return invalid_input("sum() cannot sum strings; use join");
  for (const Value& item : items) {
    BRAID_ASSIGN(const Value value, get_path(item, bound.or_else(1, Value()), Value()));
    BRAID_ASSIGN(total, apply(Operator::kAdd, total, value, budget));
  }
  return total;
}

Result<Value> batch_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("batch", arguments, {"value", "linecount", "fill_with"}, 2));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  BRAID_ASSIGN(const int64_t size, bound.integer(1, 1));
  std::vector<Value> out, row;
  for (const Value& item : items) {
    if (static_cast<int64_t>(row.size()) == size)
      out.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (row.empty()) return make_object<Generator>(std::move(out));
  if (bound.given(2) && static_cast<int64_t>(row.size()) < size) {
    BRAID_TRY(budget.spend(static_cast<uint64_t>(size)));
    row.resize(static_cast<size_t>(size), bound.at(2));
  }
  out.push_back(Value::list(std::move(row)));
  return make_object<Generator>(std::move(out));
}

Result<Value> slice_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("slice", arguments, {"value", "slices", "fill_with"}, 2));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(0), budget));
  BRAID_ASSIGN(const int64_t slices, bound.integer(1, 1));
  if (slices == 0) return invalid_input("integer division or modulo by zero");
  BRAID_TRY(budget.spend(static_cast<uint64_t>(std::max<int64_t>(slices, 0))));
  const auto length = static_cast<int64_t>(items.size());
  const int64_t each = slices > 0 ? length / slices : 0, extra = slices > 0 ? length % slices : 0;
  std::vector<Value> out;
  auto at = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = at + each + (i < extra ? 1 : 0);
    std::vector<Value> part(at, end);
    if (bound.given(2) && i >= extra) part.push_back(bound.at(2));
    out.push_back(Value::list(std::move(part)));
    at = end;
  }
  return make_object<Generator>(std::move(out));
}

struct SequenceFilter {
  const char* name;
  Builtin body;
};
constexpr SequenceFilter kSequenceFilters[] = {
    {"batch", deferred<batch_filter>},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"groupby", groupby_filter},
    {"items", deferred<items_filter>},
    {"join", join_filter},
    {"last", last_filter},
    {"list", list_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"reverse", reverse_filter},
    {"slice", deferred<slice_filter>},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", deferred<unique_filter>},
};

}  // namespace

Builtin find_sequence_filter(const std::string& name) {
  for (const SequenceFilter& entry : kSequenceFilters)
    if (name == entry.name) return entry.body;
  return nullptr;
}

}  // namespace braid::jinja
