#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "base/text.h"

namespace braid::inline base {
namespace {

// Of lists and maps in each other: what copies, prints and ends a tree takes them by recursion.
constexpr size_t kMostYamlLevels = 100;

// Builds a YamlNode from yaml-cpp's events; the first thing that Braid refuses is kept as error.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string file) : file_(std::move(file)) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add_null(mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases (*name) are not supported");
    add_null(mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (expecting_key()) {
      begin_key(mark, value);
      return;
    }
    const bool quoted = tag == "!";
    const bool null = !quoted && (value == "null" || value == "~" || value.empty());
    add(YamlNode{null ? YamlNode::Kind::kNull : YamlNode::Kind::kScalar, value, quoted,
                 origin(mark)});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

  Result<YamlNode> take() {
    if (!error_.ok()) return error_;
    if (root_.kind == YamlNode::Kind::kNull) root_.kind = YamlNode::Kind::kMap;
    if (root_.origin.empty()) root_.origin = cat(file_, ":1");
    return std::move(root_);
  }

 private:
  std::string origin(const YAML::Mark& mark) const { return cat(file_, ":", mark.line + 1); }
  void fail(const YAML::Mark& mark, const std::string& message) {
    if (error_.ok()) error_ = invalid_input(cat(origin(mark), ": ", message));
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) fail(mark, "anchors (&name) are not supported; write the value out");
  }
  bool expecting_key() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap && !has_key_.back();
  }
  void begin_key(const YAML::Mark& mark, const std::string& key) {
    if (open_.back().find(key) != nullptr)
      fail(mark,
           cat("key '", key, "' occurs twice (first at ", open_.back().find(key)->origin, ")"));
    open_.back().map.emplace_back(key, YamlNode{YamlNode::Kind::kNull, "", false, origin(mark)});
    has_key_.back() = true;
  }
  // Refuses what stands where a key must be, and goes on as if there were one.
  void refuse_as_key(const YAML::Mark& mark) {
    fail(mark, "a key must be a plain word");
    begin_key(mark, "?");
  }
  void add_null(const YAML::Mark& mark) {
    if (expecting_key())
      refuse_as_key(mark);
    else
      add(YamlNode{YamlNode::Kind::kNull, "", false, origin(mark)});
  }
  void open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    if (expecting_key()) refuse_as_key(mark);
    if (open_.size() == kMostYamlLevels)
      throw YAML::ParserException(mark, cat("nested deeper than ", kMostYamlLevels, " levels"));
    open_.push_back(YamlNode{kind, "", false, origin(mark)});
    has_key_.push_back(false);
  }
  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    has_key_.pop_back();
    add(std::move(node));
  }
  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().kind == YamlNode::Kind::kList) {
      open_.back().list.push_back(std::move(node));
    } else {
      open_.back().map.back().second = std::move(node);
      has_key_.back() = false;
    }
  }

  std::string file_;
  YamlNode root_;
  std::vector<YamlNode> open_;
  std::vector<bool> has_key_;
  Status error_;
};

Status expand_scalar(YamlNode& node,
                     const std::function<std::optional<std::string>(const std::string&)>& lookup) {
  std::string out;
  size_t from = 0;
  while (true) {
    const size_t begin = node.scalar.find("${", from);
    if (begin == std::string::npos) break;
    const size_t end = node.scalar.find('}', begin);
    if (end == std::string::npos) return invalid_input(cat(node.origin, ": '${' without '}'"));
    const std::string name = node.scalar.substr(begin + 2, end - begin - 2);
    const auto value = lookup(name);
    if (!value)
      return invalid_input(cat(node.origin, ": environment variable ", name,
                               " is not set; export it or write the value"));
    out += node.scalar.substr(from, begin - from) + *value;
    from = end + 1;
  }
  node.scalar = out + node.scalar.substr(from);
  return ok_status();
}

bool needs_quotes(const YamlNode& node) {
  if (node.quoted || node.scalar.empty()) return true;
  return node.scalar.find_first_of(":#{}[]&*!|>'\"%@`\n,") != std::string::npos ||
         node.scalar != std::string(trim(node.scalar)) || node.scalar == "~" ||
         node.scalar == "null" || node.scalar[0] == '-';
}

std::string scalar_text(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return "null";
  double number = 0;
  if (!node.quoted && parse_double(node.scalar, &number)) return node.scalar;
  if (!needs_quotes(node)) return node.scalar;
  YAML::Emitter emitter;
  emitter << YAML::DoubleQuoted << node.scalar;
  return emitter.c_str();
}

void write_block(std::ostringstream& out, const YamlNode& node, int indent, bool origins);

void write_value(std::ostringstream& out, const YamlNode& node, int indent, bool origins) {
  if (node.kind == YamlNode::Kind::kMap && !node.map.empty()) {
    out << "\n";
    write_block(out, node, indent, origins);
  } else if (node.kind == YamlNode::Kind::kList && !node.list.empty()) {
    out << "\n";
    write_block(out, node, indent, origins);
  } else {
    if (node.kind == YamlNode::Kind::kMap)
      out << " {}";
    else if (node.kind == YamlNode::Kind::kList)
      out << " []";
    else
      out << " " << scalar_text(node);
    if (origins) out << "  # " << node.origin;
    out << "\n";
  }
}

void write_block(std::ostringstream& out, const YamlNode& node, int indent, bool origins) {
  const std::string blank(indent, ' ');
  for (const auto& [key, value] : node.map) {
    out << blank << key << ":";
    write_value(out, value, indent + 2, origins);
  }
  for (const YamlNode& item : node.list) {
    out << blank << "-";
    write_value(out, item, indent + 2, origins);
  }
}

}  // namespace

// Out of the header: the tree's own type is incomplete inside it.
YamlNode::YamlNode() = default;
YamlNode::YamlNode(Kind kind, std::string scalar, bool quoted, std::string origin)
    : kind(kind), scalar(std::move(scalar)), quoted(quoted), origin(std::move(origin)) {}
YamlNode::YamlNode(const YamlNode&) = default;
YamlNode::YamlNode(YamlNode&&) noexcept = default;
YamlNode& YamlNode::operator=(const YamlNode&) = default;
YamlNode& YamlNode::operator=(YamlNode&&) noexcept = default;
YamlNode::~YamlNode() = default;

YamlNode* YamlNode::find(std::string_view key) {
  for (auto& [name, value] : map)
    if (name == key) return &value;
  return nullptr;
}
const YamlNode* YamlNode::find(std::string_view key) const {
  return const_cast<YamlNode*>(this)->find(key);
}

Result<YamlNode> parse_yaml(std::string_view text, const std::string& file) {
  TreeBuilder builder(file);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    TreeBuilder next(file);
    if (parser.HandleNextDocument(next))
      return invalid_input(cat(file, ": holds several documents (---), of which only the first ",
                               "would be read; keep one"));
  } catch (const YAML::Exception& error) {
    return invalid_input(cat(file, ":", error.mark.line + 1, ": not valid YAML: ", error.msg));
  }
  return builder.take();
}

void merge_yaml(YamlNode& base, const YamlNode& overlay) {
  if (base.kind != YamlNode::Kind::kMap || overlay.kind != YamlNode::Kind::kMap) {
    base = overlay;
    return;
  }
  for (const auto& [key, value] : overlay.map) {
    if (YamlNode* existing = base.find(key))
      merge_yaml(*existing, value);
    else
      base.map.emplace_back(key, value);
  }
}

namespace {

void set_origin(YamlNode& node, const std::string& origin) {
  node.origin = origin;
  for (auto& [key, value] : node.map) set_origin(value, origin);
  for (YamlNode& item : node.list) set_origin(item, origin);
}

}  // namespace

Status set_yaml_path(YamlNode& root, const std::string& path, const std::string& value,
                     const std::string& origin) {
  const std::string text = value == "-" ? "'-'" : value;  // standard input, no list
  BRAID_ASSIGN(YamlNode parsed, parse_yaml("value: " + text, origin));
  YamlNode leaf = parsed.map.empty() ? YamlNode{} : parsed.map.front().second;
  set_origin(leaf, origin);
  YamlNode* node = &root;
  const std::vector<std::string> keys = split(path, '.');
  if (keys.size() > kMostYamlLevels)
    return invalid_input(
        cat(origin, ": a key of ", keys.size(), " parts; no key has more than ", kMostYamlLevels));
  for (const std::string& key : keys) {
    if (key.empty()) return invalid_input(cat(origin, ": empty part in key '", path, "'"));
    if (node->kind != YamlNode::Kind::kMap)
      *node = YamlNode{YamlNode::Kind::kMap, "", false, origin};
    YamlNode* next = node->find(key);
    if (next == nullptr) next = &node->map.emplace_back(key, YamlNode{}).second;
    node = next;
  }
  *node = std::move(leaf);
  return ok_status();
}

Status expand_variables(
    YamlNode& root, const std::function<std::optional<std::string>(const std::string&)>& lookup) {
  if (root.kind == YamlNode::Kind::kScalar) return expand_scalar(root, lookup);
  for (auto& [key, value] : root.map) BRAID_TRY(expand_variables(value, lookup));
  for (YamlNode& item : root.list) BRAID_TRY(expand_variables(item, lookup));
  return ok_status();
}

std::string yaml_text(const YamlNode& root, bool with_origins) {
  std::ostringstream out;
  write_block(out, root, 0, with_origins);
  return out.str();
}

}  // namespace braid::inline base
