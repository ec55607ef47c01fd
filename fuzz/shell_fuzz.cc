// Launch scripts read as text: whatever a script says, reading it ends, and what is handed back is
// whole. Its first line is also the one file beside it.
#include "foreign/shell/shell.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  braid::foreign::ShellOptions options;
  options.folder = "/project";
  options.arguments = {"one", "two words"};
  options.environment = braid::foreign::slurm_variables(text);
  options.read = [&](const std::string& path) {
    return path == "/project/inner.sh" ? std::optional(text.substr(0, text.find('\n')))
                                       : std::nullopt;
  };
  options.is_folder = [](const std::string& path) { return path == "/project/folder"; };
  const auto reading = braid::foreign::read_shell(text, options);
  if (!reading.ok()) {
    BRAID_CHECK(!reading.status().message().empty(), "an error without a reason");
    return 0;
  }
  for (const auto& words : reading->commands)
    BRAID_CHECK(!words.empty(), "a command without words");
  for (const std::string& name : reading->unset) BRAID_CHECK(!name.empty(), "a nameless variable");
  (void)braid::foreign::shell_words(text);
  return 0;
}
