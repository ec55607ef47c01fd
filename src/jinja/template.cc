#include "jinja/template.h"

#include "base/utf8.h"
#include "jinja/evaluator.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"

namespace braid::jinja {
namespace {

constexpr int kMostJsonDepth = 100;

Result<Value> from_json_at(const OrderedJson& json, int depth) {
  if (depth > kMostJsonDepth)
    return invalid_input(cat("JSON nested deeper than ", kMostJsonDepth, " levels"));
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX)
        return invalid_input(cat("the integer ", json.dump(), " does not fit into 64 bits"));
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return Value(json.get<std::string>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) {
        BRAID_ASSIGN(Value value, from_json_at(item, depth + 1));
        items.push_back(std::move(value));
      }
      return Value::list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      const auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items()) {
        BRAID_ASSIGN(Value value, from_json_at(item, depth + 1));
        dict->set(Value(key), std::move(value));
      }
      return Value(std::shared_ptr<const Dict>(dict));
    }
    default:
      return Value();
  }
}

}  // namespace

Result<Template> Template::parse(std::string name, std::string_view source) {
  const std::string where = cat("chat template '", name, "'");
  const size_t invalid = find_invalid_utf8(source);
  if (invalid != std::string_view::npos)
    return invalid_input(cat(where, ": invalid UTF-8 at byte ", invalid));
  Template out;
  out.name_ = std::move(name);
  out.source_ = std::make_shared<const std::string>(normalized_source(source));
  BRAID_ASSIGN(Program program, parse_program(*out.source_).at(where));
  out.program_ = std::make_shared<const Program>(std::move(program));
  return out;
}

Result<Rendering> Template::render(const Dict& variables, const RenderOptions& options) const {
  return Evaluator(*program_, *source_, options)
      .run(variables)
      .at(cat("chat template '", name_, "'"));
}

bool Template::has_generation() const { return program_->has_generation; }

Result<Value> from_json(const OrderedJson& json) { return from_json_at(json, 1); }

}  // namespace braid::jinja
