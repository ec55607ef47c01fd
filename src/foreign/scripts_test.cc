// What upstream's launch scripts launch, by a committed list of facts: names, hashes, their keys of
// layout, batch, lengths and models, and the sizes (tools/read_scripts.py writes it). Each is read,
// and planned with the layout that it launches.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "foreign/foreign.h"
#include "plan/plan_text.h"
#include "plan/validate.h"
#include "test_paths.h"

namespace braid::inline foreign {
namespace {

Json committed_list() {
  std::ifstream file(std::string(BRAID_SOURCE_DIR) + "/tests/data/foreign/scripts.json");
  std::ostringstream text;
  text << file.rdbuf();
  const auto json = parse_json(text.str(), "scripts.json");
  EXPECT_TRUE(json.ok()) << json.status().message();
  return json.ok() ? *json : Json::array();
}

ForeignKeys keys_of(const Json& row) {
  ForeignKeys keys;
  for (const char* part : {"keys", "beside"})
    for (const auto& [key, value] : row.at(part).items()) keys[key] = value.get<std::string>();
  return keys;
}

int64_t read_among(const Json& names, const KeyReport& keys) {
  int64_t read = 0;
  for (const auto& item : names.items()) {
    const std::string& key = item.key();
    read += std::count(keys.read.begin(), keys.read.end(), key) +
            std::count_if(keys.without_effect.begin(), keys.without_effect.end(),
                          [&](const KeyReport::Entry& entry) {
                            return entry.key == key && entry.why.rfind("the run has no ", 0) == 0;
                          });
  }
  return read;
}

// "" or what differs.
std::string differences(const Json& launches, const ImportedPlan& imported) {
  std::string out;
  const auto compare = [&](const char* name, int64_t planned) {
    if (launches.contains(name) && launches.at(name).get<int64_t>() != planned)
      out += cat(name, " ", launches.at(name).get<int64_t>(), " is planned as ", planned, "; ");
  };
  const Strategy& update = call_plan(imported.plan, "update_actor").strategy;
  const Strategy& generate = call_plan(imported.plan, "generate").strategy;
  compare("dp", update.dp);
  compare("tp", update.tp);
  compare("pp", update.pp);
  compare("cp", update.cp);
  const bool sparse = imported.problem.models.at("actor").spec.experts > 0;
  if (sparse) compare("ep", update.ep);
  compare("rollout_tp", generate.tp);
  compare("rollout_devices", int64_t{generate.dp} * generate.tp * generate.pp);
  compare("samples", imported.problem.workload.samples_per_prompt);
  return out;
}

// Recipes are listed too; many name a model that only their author has.
bool is_example(const std::string& script) { return script.rfind("recipe/", 0) != 0; }

TEST(UpstreamScripts, AreReadAndPlannedWithTheLayoutThatTheyLaunch) {
  double examples = 0, read = 0;
  std::string refused, other;
  for (const Json& row : committed_list()) {
    const std::string name = row.at("script").get<std::string>();
    const Framework& framework = **find_framework(row.at("framework").get<std::string>());
    ImportOptions options;
    options.gpu = "h200";
    const auto imported = framework.import_keys(keys_of(row), options);
    if (is_example(name)) ++examples;
    if (!imported.ok()) {
      if (is_example(name)) refused += cat(name, ": ", imported.status().message(), "\n");
      continue;
    }
    const Json& keys = row.at("keys");
    const bool all = read_among(keys, imported->keys) == static_cast<int64_t>(keys.size());
    if (is_example(name) && all) ++read;
    if (!all) refused += cat(name, ": keys not read\n");
    const std::string wrong = differences(row.at("launches"), *imported);
    if (!wrong.empty()) other += cat(name, ": ", wrong, "\n");
  }
  EXPECT_GE(examples, 100);
  EXPECT_GE(read, 0.9 * examples) << refused;
  EXPECT_EQ(other, "");
}

}  // namespace
}  // namespace braid::inline foreign
