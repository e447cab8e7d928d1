// Mutates JSON text so that it usually stays JSON: numbers, items, and the words of safetensors
// headers and indexes of shards.
#pragma once

#include <string>

#include "fuzz/mutation.hpp"

namespace weightmap::fuzz {

void mutate_json(std::string& text, Random& random);

}  // namespace weightmap::fuzz
