// Renders templates for tools that compare them with jinja2: reads JSON lines
//   {"template": text, "variables": {…}, "now": "2024-07-26 12:30:00"}
// from standard input and writes one line {"text": …} or {"error": …} for each.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>

#include "jinja/template.h"

namespace braid::jinja {
namespace {

Result<Rendering> render_line(const OrderedJson& line) {
  BRAID_ASSIGN(const Template parsed,
               Template::parse("line", line.at("template").get<std::string>()));
  BRAID_ASSIGN(const Value variables, from_json(line.at("variables")));
  RenderOptions options;
  std::tm time{};
  if (line.contains("now"))
    strptime(line.at("now").get<std::string>().c_str(), "%Y-%m-%d %H:%M:%S", &time);
  options.now = [time](const std::string& format) {
    char text[1000];
    return std::string(text, std::strftime(text, sizeof text, format.c_str(), &time));
  };
  return parsed.render(variables.dict(), options);
}

int run() {
  std::string text;
  while (std::getline(std::cin, text)) {
    const Result<Rendering> rendering = render_line(OrderedJson::parse(text));
    OrderedJson out;
    if (rendering.ok()) {
      out["text"] = rendering->text;
      for (const Span& span : rendering->generated) out["spans"].push_back({span.begin, span.end});
    } else {
      out["error"] = rendering.status().message();
    }
    std::cout << out.dump() << "\n" << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace braid::jinja

int main() { return braid::jinja::run(); }
