// Texts that ranks tell each other beside their lists: one rank another, all the first one. What
// all tell is merged on its way up the tree of the group, so that a rank hears
// a few others and says one text, however many there are. A null group is one rank alone. One
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/communicator.h"

namespace braid::inline comm {

// `to` and `from` are global ranks; `what` is the text's name in messages, here and below.
Status send_text(const std::string& text, int64_t to, Communicator& group, std::string_view what);
Result<std::string> receive_text(int64_t from, Communicator& group, std::string_view what);

struct MergedText {
  std::function<std::string()> said;  // of this rank and all that it has heard
  std::function<Status(const std::string& text)> hear;
};
// Every rank calls it. The first one has heard all others then, in the order of their places: what
// a rank has heard belongs to the places right behind its own. The others have heard some.
Status merge_to_first(Communicator* group, const MergedText& texts, std::string_view what);

}  // namespace braid::inline comm
