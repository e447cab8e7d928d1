// From JSON text to a value tree: objects become dicts, whose keys stay in their order.
#pragma once

#include <string_view>

#include "runtime/json/token_reader.hpp"
#include "runtime/value/builder.hpp"
#include "weightmap/result.hpp"

namespace weightmap::json {

// Adds the next value that `json` has. Fails as add_document() does; the reader has failed then,
// too, unless it was the builder.
Result<value::Cell> add_value(value::Builder& build, TokenReader& json);

// The same of a value that must be an object whose items are strings.
Result<value::Cell> add_strings(value::Builder& build, TokenReader& json);

// Adds the document `text` to what `build` makes. Fails with corrupt, and the position in the text
// of the first byte that is wrong for a file offset, if it is not JSON in UTF-8, if an object has a
// key twice, or if a number fits neither 64 bits nor a double; with limit_exceeded beyond the
// builder's limits. Recursion goes as deep as TokenReader::deepest.
Result<value::Cell> add_document(value::Builder& build, std::string_view text);

}  // namespace weightmap::json
