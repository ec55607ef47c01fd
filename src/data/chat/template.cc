#include "data/chat/template.h"

#include <algorithm>
#include <optional>

#include "data/chat/template_ops.h"

namespace braid {
namespace {

// Stands for any text in a spelling below.
constexpr char kAnyText = '\x01';

// A Jinja program and what it means; the text found in place of kAnyText becomes the default system
// text of a chatml template.
struct Spelling {
  std::string program;
  ChatTemplate meaning;
};

std::string prompt_block(const std::string& text, bool always) {
  const std::string written = cat("{{ '", text, "' }}");
  return always ? written : cat("{% if add_generation_prompt %}", written, "{% endif %}");
}

std::string bos_block(bool writes_bos) { return writes_bos ? "{{ bos_token }}" : ""; }
std::string content_of(bool trims) { return trims ? "m.content | trim" : "m.content"; }

// Every combination of three options.
template <typename Add>
void for_each_option(Add add) {
  for (const bool first : {false, true})
    for (const bool second : {false, true})
      for (const bool third : {false, true}) add(first, second, third);
}

void add_chatml(std::vector<Spelling>* out) {
  const std::string text =
      cat("{{ '<|im_start|>system\\n", kAnyText, "<|im_end|>\\n' }}{% endif %}");
  const std::string before = cat("{% if messages[0].role != 'system' %}", text);
  const std::string inside = cat("{% if loop.first and messages[0].role != 'system' %}", text);
  for_each_option([&](bool writes_bos, bool trims, bool always) {
    const ChatTemplate meaning{ChatFormat::kChatml, writes_bos, trims, always, ""};
    const std::string bos = bos_block(writes_bos);
    const std::string loop = "{% for m in messages %}";
    const std::string body =
        cat("{{ '<|im_start|>' + m.role + '\\n' + ", content_of(trims),
            " + '<|im_end|>\\n' }}{% endfor %}", prompt_block("<|im_start|>assistant\\n", always));
    out->push_back({cat(bos, loop, body), meaning});
    out->push_back({cat(bos, loop, inside, body), meaning});
    out->push_back({cat(bos, before, loop, body), meaning});
  });
}

void add_llama3(std::vector<Spelling>* out) {
  const std::string header = "'<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + ";
  const std::string prompt = "<|start_header_id|>assistant<|end_header_id|>\\n\\n";
  for_each_option([&](bool writes_bos, bool trims, bool always) {
    const ChatTemplate meaning{ChatFormat::kLlama3, writes_bos, trims, always, ""};
    const std::string turn = cat(header, content_of(trims), " + '<|eot_id|>'");
    const std::string end = cat("{% endfor %}", prompt_block(prompt, always));
    out->push_back(
        {cat(bos_block(writes_bos), "{% for m in messages %}{{ ", turn, " }}", end), meaning});
    if (!writes_bos) return;
    const std::string body =
        cat("{% set c = ", turn,
            " %}{% if loop.first %}{% set c = bos_token + c %}{% endif %}{{ c }}", end);
    out->push_back({cat("{% for m in messages %}", body), meaning});
    out->push_back({cat("{% set l = messages %}{% for m in l %}", body), meaning});
  });
}

std::string rejection() { return cat("{{ raise_exception('", kAnyText, "') }}{% endif %}"); }

std::string alternation_check() {
  return cat("{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}", rejection());
}

void add_llama2(std::vector<Spelling>* out) {
  const std::string program =
      cat("{% if messages[0].role == 'system' %}{% set l = messages[1:] %}"
          "{% set s = messages[0].content %}{% else %}{% set l = messages %}{% set s = false %}"
          "{% endif %}{% for m in l %}",
          alternation_check(),
          "{% if loop.first and s != false %}"
          "{% set c = '<<SYS>>\\n' + s + '\\n<</SYS>>\\n\\n' + m.content %}"
          "{% else %}{% set c = m.content %}{% endif %}"
          "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + c | trim + ' [/INST]' }}"
          "{% elif m.role == 'assistant' %}{{ ' ' + c | trim + ' ' + eos_token }}{% endif %}"
          "{% endfor %}");
  out->push_back({program, {ChatFormat::kLlama2, true, true, false, ""}});
}

// With and without the checks: Braid makes them in any case.
void add_gemma(std::vector<Spelling>* out) {
  const std::string system_check = "{% if messages[0].role == 'system' %}" + rejection();
  const std::string name_block =
      "{% if m.role == 'assistant' %}{% set r = 'model' %}{% else %}{% set r = m.role %}{% endif "
      "%}";
  const std::string name_value = "('model' if m.role == 'assistant' else m.role)";
  for_each_option([&](bool trims, bool checks_system, bool checks_order) {
    const auto add = [&](const std::string& block, const std::string& name) {
      out->push_back(
          {cat("{{ bos_token }}", checks_system ? system_check : "", "{% for m in messages %}",
               checks_order ? alternation_check() : "", block, "{{ '<start_of_turn>' + ", name,
               " + '\\n' + ", content_of(trims), " + '<end_of_turn>\\n' }}{% endfor %}",
               prompt_block("<start_of_turn>model\\n", false)),
           {ChatFormat::kGemma, true, trims, false, ""}});
    };
    add(name_block, "r");
    add("", name_value);
  });
}

void add_plain(std::vector<Spelling>* out) {
  for_each_option([&](bool writes_bos, bool trims, bool always) {
    out->push_back(
        {cat(bos_block(writes_bos), "{% for m in messages %}{{ m.role + ': ' + ", content_of(trims),
             " + '\\n' }}{% endfor %}", prompt_block("assistant: ", always)),
         {ChatFormat::kPlain, writes_bos, trims, always, ""}});
  });
}

struct KnownTemplate {
  std::vector<TemplateOp> ops;
  ChatTemplate meaning;
};

const std::vector<KnownTemplate>& known_templates() {
  static const std::vector<KnownTemplate> known = [] {
    std::vector<Spelling> spellings;
    for (const auto add : {add_chatml, add_llama2, add_llama3, add_gemma, add_plain})
      add(&spellings);
    std::vector<KnownTemplate> out;
    for (Spelling& spelling : spellings)
      out.push_back({canonical_template(spelling.program).value(), std::move(spelling.meaning)});
    return out;
  }();
  return known;
}

// The text that stands for kAnyText, never empty there; "" when the pattern has none; nothing when
// they differ.
std::optional<std::string> match_text(std::string_view pattern, std::string_view text) {
  const size_t any = pattern.find(kAnyText);
  if (any == std::string_view::npos)
    return pattern == text ? std::optional<std::string>("") : std::nullopt;
  const std::string_view head = pattern.substr(0, any), tail = pattern.substr(any + 1);
  if (text.size() <= head.size() + tail.size() || text.substr(0, head.size()) != head ||
      text.substr(text.size() - tail.size()) != tail)
    return std::nullopt;
  return std::string(text.substr(any, text.size() - head.size() - tail.size()));
}

std::optional<ChatTemplate> match_template(const KnownTemplate& known,
                                           const std::vector<TemplateOp>& ops) {
  if (known.ops.size() != ops.size()) return std::nullopt;
  ChatTemplate meaning = known.meaning;
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto any = match_text(known.ops[i].text, ops[i].text);
    if (known.ops[i].kind != ops[i].kind || !any) return std::nullopt;
    if (meaning.format == ChatFormat::kChatml && !any->empty()) meaning.default_system = *any;
  }
  return meaning;
}

// A hint for templates that use the marks of a known format in another way.
std::string likeness(std::string_view jinja) {
  const auto has = [&](const char* mark) { return jinja.find(mark) != std::string_view::npos; };
  const char* name = has("<|im_start|>")               ? "chatml"
                     : has("<|start_header_id|>")      ? "llama3"
                     : has("<start_of_turn>")          ? "gemma"
                     : has("[INST]") && has("<<SYS>>") ? "llama2"
                                                       : nullptr;
  return name == nullptr ? "" : cat("; it uses the marks of ", name, " but not exactly its form");
}

Status check_no_tool_calls(const Json& message, const std::string& where) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->empty()) return ok_status();
  return invalid_input(cat(where, " has tool_calls, which no known chat template writes"));
}

}  // namespace

const char* chat_format_name(ChatFormat format) {
  switch (format) {
    case ChatFormat::kChatml:
      return "chatml";
    case ChatFormat::kLlama2:
      return "llama2";
    case ChatFormat::kLlama3:
      return "llama3";
    case ChatFormat::kGemma:
      return "gemma";
    case ChatFormat::kPlain:
      return "plain";
  }
  return "unknown";
}

Result<std::vector<ChatMessage>> parse_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    return invalid_input("messages must be an array of at least one {\"role\", \"content\"}");
  std::vector<ChatMessage> out;
  for (const Json& message : messages) {
    const std::string where = cat("message ", out.size() + 1);
    if (!message.is_object()) return invalid_input(cat(where, " is no object"));
    BRAID_TRY(check_no_tool_calls(message, where));
    BRAID_ASSIGN(std::string role, json_field<std::string>(message, "role").at(where));
    BRAID_ASSIGN(std::string content, json_field<std::string>(message, "content").at(where));
    out.push_back({std::move(role), std::move(content)});
  }
  return out;
}

Result<ChatTemplate> recognize_chat_template(std::string_view jinja) {
  const std::string remedy =
      "; known are chatml, llama2, llama3, gemma and plain. Render the messages to ids first: "
      "python3 tools/render_prompts.py MODEL --input FILE.jsonl --output IDS.jsonl";
  if (jinja.empty())
    return invalid_input(cat("messages need a chat template and the tokenizer has none", remedy));
  const auto ops = canonical_template(jinja);
  if (ops.ok())
    for (const KnownTemplate& known : known_templates())
      if (const auto meaning = match_template(known, *ops)) return *meaning;
  return invalid_input(cat("the chat template is not a known one", likeness(jinja), remedy));
}

}  // namespace braid
