// What a.b, a['b'] and a[1:2] mean, as the sandbox of Jinja lets a template see it.
#pragma once

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

// a.name: an attribute, otherwise the item of that name, otherwise undefined. An error for an
// undefined object.
Result<Value> get_attribute(const Value& object, const std::string& name);

// a[key]: the item, otherwise for a text the attribute of that name, otherwise undefined.
Result<Value> get_item(const Value& object, const Value& key);

// The attribute of an object alone; nothing when it has none of the name.
std::optional<Value> find_attribute(const Value& object, const std::string& name);

// a[begin:end:step]; None stands for an end that is not given.
Result<Value> get_slice(const Value& object, const Value& begin, const Value& end,
                        const Value& step);

// A dotted path such as "function.name" or "0.text", as filters take it; an int is an index. What
// is undefined on the way becomes `fallback` unless that is None.
Result<Value> get_path(const Value& object, const Value& path, const Value& fallback);

}  // namespace braid::jinja
