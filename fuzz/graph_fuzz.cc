// Dataflow graphs: what parses is well formed, prints to a text that parses to the same graph, and
// unrolls.
#include "dataflow/parse_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = braid::parse_graph(text, "fuzz.yaml");
  if (!graph.ok()) return 0;
  const auto again = braid::parse_graph(braid::graph_to_yaml(*graph), "printed.yaml");
  BRAID_CHECK(again.ok(), again.status().message());
  BRAID_CHECK(*again == *graph, "the printed graph differs");
  BRAID_CHECK(braid::verify(braid::unroll(*graph, 2)).ok(), "two iterations are not well formed");
  return 0;
}
