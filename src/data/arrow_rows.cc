#include "data/arrow_rows.h"

#include <dlfcn.h>

#include <array>

#include "base/text.h"
#include "data/arrow_plugin.h"
#include "host/file.h"
#include "host/machine.h"

namespace braid::inline data {
namespace {

constexpr const char* kPluginName = "libbraid_arrow.so";
constexpr size_t kErrorBytes = 2048;

struct ArrowPlugin {
  BraidArrowRows rows = nullptr;
  std::string problem;  // why rows is missing
};

// Beside the program, or where an installed one has its libraries.
ArrowPlugin open_plugin() {
  ArrowPlugin out;
  const std::string folder = program_folder();
  for (const std::string& place : {folder, join_path(folder, "../lib")}) {
    const std::string path = join_path(place, kPluginName);
    if (!path_exists(path)) continue;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      out.problem = cat(::dlerror(), "; Arrow's libraries are where Braid was built with them");
      return out;
    }
    out.rows = reinterpret_cast<BraidArrowRows>(::dlsym(library, "braid_arrow_rows"));
    if (out.rows == nullptr) out.problem = cat(path, " is of another Braid");
    return out;
  }
  out.problem = cat(
      kPluginName,
      " is not beside the program; copy it there from the folder that Braid was built "
      "in, or, if it is not there either, run 'python3 -m pip install pyarrow' and 'make build' "
      "(docs/dependencies.md)");
  return out;
}

const ArrowPlugin& arrow_plugin() {
  static const ArrowPlugin opened = open_plugin();
  return opened;
}

struct VisitState {
  const std::function<Status(std::string_view)>& visit;
  Status status;
};

int visit_row(void* context, const char* row, size_t bytes) {
  auto& state = *static_cast<VisitState*>(context);
  state.status = state.visit({row, bytes});
  return state.status.ok() ? 0 : 1;
}

}  // namespace

ArrowKind arrow_kind(std::string_view content) {
  using std::string_view_literals::operator""sv;
  if (content.starts_with("PAR1")) return ArrowKind::kParquet;
  const bool ipc = content.starts_with("ARROW1\0\0"sv) || content.starts_with("\xff\xff\xff\xff");
  return ipc ? ArrowKind::kIpc : ArrowKind::kNone;
}

bool can_read_arrow() { return arrow_plugin().rows != nullptr; }

Status for_each_arrow_row(const std::string& path,
                          const std::function<Status(std::string_view row)>& visit) {
  const ArrowPlugin& plugin = arrow_plugin();
  if (plugin.rows == nullptr)
    return invalid_input(cat(path, ": parquet and Arrow files cannot be read: ", plugin.problem));
  VisitState state{visit, {}};
  std::array<char, kErrorBytes> error{};
  const int result = plugin.rows(path.c_str(), visit_row, &state, error.data(), error.size());
  if (result == 1) return invalid_input(cat(path, ": ", error.data()));
  return state.status;
}

}  // namespace braid::inline data
