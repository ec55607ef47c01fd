// braid build-loss: a loss or advantages of the user's as a library that algorithm.loss and
// algorithm.advantages name.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "app/own_loss_text.h"
#include "base/text.h"
#include "braid/commands.h"
#include "braid/data/inputs.h"
#include "host/file.h"
#include "host/machine.h"
#include "host/process.h"

namespace braid {
namespace {

constexpr const char* kHeader = "braid_loss.h";
constexpr double kDeadline_s = 600;

struct BuildLossOptions {
  std::string source, output;
  std::string compiler = BRAID_COMPILER;
};

// A folder of this process for the header, which goes with it.
class HeaderFolder {
 public:
  HeaderFolder()
      : path_(join_path(std::filesystem::temp_directory_path().string(),
                        cat("braid-loss-", ::getpid()))) {}
  HeaderFolder(const HeaderFolder&) = delete;
  HeaderFolder& operator=(const HeaderFolder&) = delete;
  ~HeaderFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  Status write() const {
    BRAID_TRY(make_folder(path_));
    return write_file_atomic(join_path(path_, kHeader), std::string(kOwnLossHeader));
  }

 private:
  std::string path_;
};

Status check_source(const std::string& source) {
  BRAID_ASSIGN(const std::string text, read_file(source));
  if (text.find("BRAID_LOSS") != std::string::npos ||
      text.find("BRAID_ADVANTAGES") != std::string::npos)
    return ok_status();
  return invalid_input(cat(source,
                           ": it has no BRAID_LOSS(function) and no "
                           "BRAID_ADVANTAGES(function), which say what the library is for "
                           "(docs/own_losses.md)"));
}

// Of an installed program those of the torch that it runs with.
std::string torch_headers() {
  if (const char* stated = std::getenv("BRAID_TORCH_DIR"); stated != nullptr)
    return join_path(stated, "include");
  const std::string beside = join_path(program_folder(), "../torch/include");
  return path_exists(beside) ? beside : BRAID_TORCH_INCLUDE;
}

Status run_compiler(const BuildLossOptions& options, const std::string& header_folder,
                    const std::string& output) {
  const std::string torch = torch_headers();
  if (!path_exists(torch))
    return not_found(cat(torch,
                         ": the headers of libtorch are not there; name the torch folder that "
                         "holds them with BRAID_TORCH_DIR"));
  const std::vector<std::string> argv = {options.compiler,
                                         "-std=c++20",
                                         "-O2",
                                         "-fPIC",
                                         "-shared",
                                         "-fmax-errors=3",
                                         cat("-I", header_folder),
                                         "-isystem",
                                         torch,
                                         "-isystem",
                                         join_path(torch, "torch/csrc/api/include"),
                                         options.source,
                                         "-o",
                                         output};
  BRAID_ASSIGN(const auto process, ChildProcess::start({argv}));
  process->close_input();
  const Deadline deadline = deadline_in(kDeadline_s);
  for (auto line = process->read_line(deadline); line.ok(); line = process->read_line(deadline))
    std::printf("%s\n", line->c_str());
  BRAID_ASSIGN(const std::string end, process->wait(deadline));
  const std::string said = process->take_errors();
  if (end == "exited with status 0") return ok_status();
  return invalid_input(cat(options.source, ": ", options.compiler, " ", end, "\n", said));
}

Status build_loss(const BuildLossOptions& options) {
  BRAID_TRY(check_source(options.source));
  const HeaderFolder header;
  BRAID_TRY(header.write());
  const std::string output =
      options.output.empty()
          ? std::filesystem::path(options.source).replace_extension(".so").string()
          : options.output;
  if (!output.ends_with(".so")) return invalid_input(cat("--output: ", output, " must end in .so"));
  // A run that has opened the file goes on with it.
  const std::string fresh = cat(output, ".", ::getpid());
  BRAID_TRY(run_compiler(options, header.path(), fresh));
  std::error_code failed;
  std::filesystem::rename(fresh, output, failed);
  if (failed) return io_error(cat(output, ": ", failed.message()));
  std::printf("%s\n", output.c_str());
  return ok_status();
}

Action define_build_loss(CLI::App& app) {
  auto options = std::make_shared<BuildLossOptions>();
  app.add_option("FILE.cc", options->source, "source with BRAID_LOSS or BRAID_ADVANTAGES")
      ->required();
  app.add_option("-o,--output", options->output, "the library; FILE.so unless stated");
  app.add_option("--compiler", options->compiler, "C++20 compiler")->capture_default_str();
  return [options] { return build_loss(*options); };
}

}  // namespace

extern const Command kBuildLossCommand{
    "build-loss", "make a library of a loss or advantages of your own (docs/own_losses.md)",
    define_build_loss};

}  // namespace braid
