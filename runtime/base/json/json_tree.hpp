// Parses JSON text into a value tree: objects become dicts, whose keys keep their order.
#pragma once

#include <string_view>

#include "runtime/base/json/token_reader.hpp"
#include "runtime/base/value/builder.hpp"
#include "weightmap/result.hpp"

namespace weightmap::json {

// Adds the next value of `json`. Fails as add_document() does; the reader has failed then, too,
// unless the builder did.
Result<value::Cell> add_value(value::Builder& build, TokenReader& json);

// Does the same for a value that must be an object whose items are strings.
Result<value::Cell> add_strings(value::Builder& build, TokenReader& json);

// Adds the document `text` to `build`. Fails with corrupt, with the position of the first wrong
// byte in the text as file offset, if it is not JSON in UTF-8, if an object has a key twice, or if
// a number fits neither 64 bits nor a double; with limit_exceeded beyond the builder's limits.
// Recursion is at most Reader::deepest.
Result<value::Cell> add_document(value::Builder& build, std::string_view text);

}  // namespace weightmap::json
