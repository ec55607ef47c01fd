// braid profile: measures layers, heads, optimizer, memory and communication of a device with
// the code that trains and samples, and writes a profile for the planner.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>

#include "base/text.h"
#include "braid/engine_options.h"
#include "braid/outputs.h"
#include "comm/world.h"
#include "device/device.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "launch/own_command.h"
#include "models/size.h"
#include "pricing/profile.h"
#include "profile/bench.h"
#include "profile/machine.h"
#include "profile/measure.h"
#include "profile/ranks.h"

namespace braid {
namespace {

// Each number once; where none is said, those that suit the device. A GPU takes passes in which it
// has work for all its units, and more sequences at once.
void choose_sizes(bool processor, ProfileOptions* options) {
  const auto choose = [&](std::vector<int64_t>* sizes, std::vector<int64_t> here,
                          std::vector<int64_t> on_gpu) {
    if (sizes->empty()) *sizes = processor ? std::move(here) : std::move(on_gpu);
    const std::set<int64_t> once(sizes->begin(), sizes->end());
    sizes->assign(once.begin(), once.end());
  };
  choose(&options->tokens, {64, 256, 1024}, {256, 2048, 8192, 16384});
  choose(&options->lengths, {64, 256, 1024}, {64, 512, 4096});
  choose(&options->batches, {1, 4, 16, 64}, {1, 16, 64, 256, 1024});
  choose(&options->contexts, {128, 512, 2048}, {128, 1024, 4096});
  choose(&options->tp, {}, {});
}

Status check_shares(const ProfileOptions& options, const ModelSize& size) {
  for (const int64_t tp : options.tp) {
    if (tp > 1 && shares_evenly(size, tp)) continue;
    std::vector<std::string> possible;
    for (int64_t other = 2; other <= size.heads; ++other)
      if (shares_evenly(size, other)) possible.push_back(cat(other));
    return invalid_input(cat(
        "--tp: ", tp,
        possible.empty() ? " cannot be measured: this model is measured whole"
                         : cat(" is not a number of ranks that share the ", size.heads, " heads, ",
                               size.kv_heads, " key-value heads and ", size.intermediate,
                               " columns of the MLP evenly; such are ", join(possible, ", "))));
  }
  return ok_status();
}

Status check_counts(const ProfileOptions& options) {
  const std::pair<const char*, const std::vector<int64_t>*> lists[] = {
      {"--tokens", &options.tokens},
      {"--lengths", &options.lengths},
      {"--batches", &options.batches},
      {"--contexts", &options.contexts}};
  for (const auto& [name, values] : lists)
    for (const int64_t value : *values)
      if (value < 1 || value > (int64_t{1} << 20))
        return invalid_input(cat(name, ": ", value, " is not in 1..1048576"));
  if (*std::min_element(options.lengths.begin(), options.lengths.end()) >
      *std::max_element(options.tokens.begin(), options.tokens.end()))
    return invalid_input("--lengths: every sequence is longer than the largest of --tokens");
  return ok_status();
}

Result<ModelSpec> read_model(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  return parse_model_spec(text, file);
}

Result<Profile> measure(const ProfileOptions& options, const ModelSpec& model,
                        const ProfileBench& bench) {
  const MachineRates rates = measure_rates(bench);
  const GpuSpec device = measured_device(bench, rates);
  if (bench.everyone == nullptr || bench.everyone->index() == 0)
    std::printf("%s (%s): GEMMs %.4g TFLOP/s, memory %.4g GB/s, host copies %.4g GB/s\n",
                device.key.c_str(), device.name.c_str(), rates.matmul_tflops,
                rates.memory_gbytes_per_s, rates.host_copy_gbytes_per_s);
  const auto note = [](const std::string& left_out) {
    std::fprintf(stderr, "note: %s\n", left_out.c_str());
  };
  return measure_model(
      {options.tokens, options.lengths, options.batches, options.contexts, options.tp, note}, model,
      bench, rates);
}

Status keep_profile(const Profile& profile, const std::string& path) {
  BRAID_TRY(write_file_atomic(path, profile_json(profile).dump(1) + "\n"));
  std::printf("%-16s%6s%10s%10s%14s\n", "operation", "tp", "tokens", "context", "us");
  for (const LayerTime& time : profile.layers)
    std::printf("%-16s%6d%10.0f%10.0f%14.1f\n", profile_op_name(time.op), time.tp, time.tokens,
                time.context, time.seconds * 1e6);
  if (!profile.collectives.empty())
    std::printf("%-16s%10s%10s%14s\n", "collective", "ranks", "KiB", "us");
  for (const CollectiveTime& time : profile.collectives)
    std::printf("%-16s%10d%10.0f%14.1f\n", time.op.c_str(), time.members, time.bytes / 1024,
                time.seconds * 1e6);
  for (const auto& [name, value] : profile.efficiencies)
    std::printf("%-24s%12.4g\n", name.c_str(), value);
  std::printf("%zu times written to %s\n", profile.layers.size() + profile.collectives.size(),
              path.c_str());
  return ok_status();
}

// One of the ranks that measure side by side; the first writes what they found.
Status profile_as_rank(const ProfileOptions& options, const ModelSpec& model, ProfileBench bench,
                       World& world) {
  BRAID_ASSIGN(bench.everyone, world.everyone());
  BRAID_ASSIGN(Profile profile, measure(options, model, bench));
  BRAID_TRY(measure_communication(world, &profile));
  BRAID_TRY(average_over_ranks(world, &profile));
  return world.global_rank() == 0 ? keep_profile(profile, options.out) : ok_status();
}

Result<ProfileBench> make_bench(const ProfileOptions& options) {
  ProfileBench bench{at::Device(at::kCPU), at::kFloat, options.seconds};
  BRAID_ASSIGN(bench.device, parse_device(options.device, "--device"));
  if (options.dtype != "f32" && options.dtype != "bf16")
    return invalid_input(cat("--dtype: '", options.dtype, "' is not f32 or bf16"));
  if (options.dtype == "bf16") bench.dtype = at::kBFloat16;
  if (options.ranks > 1 && !bench.device.is_cpu())
    return invalid_input("--ranks: several ranks communicate over Gloo, between CPUs only");
  return bench;
}

Status run_profile(ProfileOptions options) {
  BRAID_ASSIGN(const ProfileBench bench, make_bench(options));
  choose_sizes(bench.device.is_cpu(), &options);
  BRAID_TRY(check_counts(options));
  BRAID_TRY(check_outputs({{"--out", options.out}}));
  BRAID_ASSIGN(const ModelSpec model, read_model(options.model));
  BRAID_TRY(check_shares(options, model));
  BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
  if (options.ranks > 1 && !membership) return run_as_ranks(options.ranks);
  const bool alone = !membership || membership->world_size == 1;
  const int64_t threads =
      options.threads > 0 || alone
          ? options.threads
          : threads_per_rank(std::thread::hardware_concurrency(), membership->local_size);
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
  if (alone) {
    BRAID_ASSIGN(const Profile profile, measure(options, model, bench));
    return keep_profile(profile, options.out);
  }
  BRAID_ASSIGN(const std::unique_ptr<World> world, World::join(*membership, {}));
  const Status ended = profile_as_rank(options, model, bench, *world);
  if (!ended.ok()) return world->fail(ended);
  return world->leave();
}

}  // namespace

extern const Command kProfileCommand =
    kProfile.with([](ProfileOptions options, const std::vector<std::string>&) -> Status {
      BRAID_ASSIGN(options.model, locate_model(options.model));
      return run_profile(options);
    });

}  // namespace braid
