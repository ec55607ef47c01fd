// A tokenizer that is another one than the quickstart's, for tests of models that do not read the
// policy's ids. Only tests include this.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "host/file.h"

namespace braid::inline session {

// Changes the tokenizer.json of a folder that has the quickstart's: two digits stand in each
// other's place, and in that of 'z' is "12", which two tokens of the quickstart's are.
inline void give_own_tokenizer(const std::string& folder) {
  const std::string file = join_path(folder, "tokenizer.json");
  OrderedJson json = *parse_ordered_json(*read_file(file), file);
  OrderedJson& vocab = json["model"]["vocab"];
  std::swap(vocab["3"], vocab["7"]);
  vocab["12"] = vocab["z"];
  vocab.erase("z");
  json["model"]["merges"] = {"1 2"};
  ASSERT_TRUE(write_file_atomic(file, json.dump()).ok());
}

}  // namespace braid::inline session
