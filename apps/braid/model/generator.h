// A model that writes responses, as 'braid generate' and 'braid chat' use it. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine_options.h"
#include "data/tokenizer/tokenizer.h"
#include "rollout/engine.h"

namespace braid {

// What every step of the commands uses.
struct Generator {
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;  // empty: prompts are ids and the output has no text
  SamplingOptions sampling;
};

// Loads model, tokenizer and tokens that end a response. Errors: what loading refuses, and stop
// strings without a tokenizer.
Result<Generator> open_generator(const GenerateOptions& options);

EngineOptions engine_of(const GenerateOptions& options);

// Ends a response at the stop strings; null where there is no tokenizer.
StopCheck stop_check(const Generator& generator, const GenerateOptions& options);

// The text of a response, cut before its first stop string. REQUIRES: there is a tokenizer.
Result<std::string> text_of(const Generator& generator, const GenerateOptions& options,
                            const Generated& sample);

// Runs an engine that has one request to its end, and writes the response's text to the standard
// output as it grows, then a line end. REQUIRES: there is a tokenizer.
Result<Generated> stream_response(Engine& engine, const Generator& generator,
                                  const GenerateOptions& options);

}  // namespace braid
