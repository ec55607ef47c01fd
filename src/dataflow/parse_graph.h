// A dataflow graph that a user writes in YAML:
//
//   name: ppo_ema
//   roles:
//     actor: {trained: true}
//     reference: {weights_from: actor}            # follows the actor's weights
//     reward: {scalar_head: true}
//   calls:                                        # in a valid order
//     fetch: {kind: fetch, function: prompts, writes: {prompt_ids: tokens per_sample}}
//     generate: {kind: generate, role: actor, reads: [prompt_ids],
//                writes: {response_ids: tokens per_token}, samples_per_prompt: 4}
//     score: {kind: infer, role: reward, reads: [prompt_ids, response_ids],
//             writes: {rewards: real per_sample}}
//     update_actor: {kind: train_step, role: actor, function: policy,
//                    reads: [prompt_ids, response_ids, rewards]}
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "dataflow/graph.h"

namespace braid::inline dataflow {

// Errors name file:line, the key and what it takes; the graph that is returned passes verify(), and
// every role has the calls that it needs.
Result<Graph> parse_graph(std::string_view text, const std::string& where);

// The graph in that form; parse_graph(graph_to_yaml(g)) == g.
std::string graph_to_yaml(const Graph& graph);

}  // namespace braid::inline dataflow
