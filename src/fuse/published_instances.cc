#include "fuse/published_instances.h"

#include "base/text.h"

namespace braid::inline fuse {
namespace {

Pipeline even_pipeline(std::string name, std::vector<int32_t> stages, int32_t micro_batches,
                       double forward, double memory) {
  const size_t count = stages.size();
  return {.name = std::move(name),
          .stages = std::move(stages),
          .micro_batches = micro_batches,
          .forward = std::vector<double>(count, forward),
          .backward = std::vector<double>(count, 2 * forward),
          .weight = {},
          .memory = std::vector<double>(count, memory)};
}

}  // namespace

const std::array<PublishedInstance, 12>& published_instances() {
  static const std::array<PublishedInstance, 12> kInstances = {{
      {"exp0", "33B/13B", 8, 4, 32, 16, 5, 4, 1.95, 2.0, 741, 42.90, 708, 19.70, 708, 918},
      {"exp1", "33B/13B", 8, 4, 16, 8, 5, 4, 1.95, 2.0, 425, 33.30, 372, 15.75, 372, 473},
      {"exp2", "33B/13B", 8, 4, 8, 4, 5, 4, 1.95, 2.0, 239, 23.60, 225, 15.60, 225, 20},
      {"exp3", "33B/13B", 8, 8, 32, 32, 5, 2, 1.95, 1.0, 755, 42.90, 702, 20.50, 702, 4979},
      {"exp4", "33B/13B", 8, 8, 16, 16, 5, 2, 1.95, 1.0, 419, 31.25, 366, 18.55, 366, 1416},
      {"exp5", "33B/13B", 8, 8, 8, 8, 5, 2, 1.95, 1.0, 225, 23.60, 225, 15.60, 225, 167},
      {"exp6", "65B/33B", 16, 8, 64, 32, 2, 2, 1.64, 2.0, 632, 75.44, 618, 39.72, 618, 4042},
      {"exp7", "65B/33B", 16, 8, 32, 16, 2, 2, 1.64, 2.0, 366, 58.48, 330, 29.88, 330, 1075},
      {"exp8", "65B/33B", 16, 8, 16, 8, 2, 2, 1.64, 2.0, 214, 42.24, 186, 26.24, 186, 679},
      {"exp9", "65B/33B", 16, 16, 64, 64, 2, 1, 1.64, 1.0, 651, 75.44, 613, 38.72, 606, 3976},
      {"exp10", "65B/33B", 16, 16, 32, 32, 2, 1, 1.64, 1.0, 363, 52.48, 318, 32.16, 318, 1564},
      {"exp11", "65B/33B", 16, 16, 16, 16, 2, 1, 1.64, 1.0, 219, 41.24, 186, 26.24, 186, 249},
  }};
  return kInstances;
}

PipelineProblem problem_of(const PublishedInstance& instance) {
  PipelineProblem problem;
  problem.nodes = instance.stages_large;
  std::vector<int32_t> stages;
  for (int32_t s = 0; s < instance.stages_large; ++s) stages.push_back(s);
  problem.pipelines.push_back(even_pipeline("large", stages, instance.micro_batches_large,
                                            instance.forward_large, instance.memory_large));
  const int32_t copies = instance.stages_large / instance.stages_small;
  for (int32_t copy = 0; copy < copies; ++copy) {
    stages.clear();
    for (int32_t s = instance.stages_small - 1; s >= 0; --s)
      stages.push_back(copy * instance.stages_small + s);
    problem.pipelines.push_back(
        even_pipeline(copies > 1 ? cat("small ", copy) : std::string("small"), stages,
                      instance.micro_batches_small, instance.forward_small, instance.memory_small));
  }
  return problem;
}

}  // namespace braid::inline fuse
