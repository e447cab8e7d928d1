// Changes JSON text so that it mostly stays JSON: numbers, items, and words that mean something to
// whoever reads the headers of safetensors files and the indexes of shards.
#pragma once

#include <string>

#include "fuzz/random.hpp"

namespace weightmap::fuzz {

void mutate_json(std::string& text, Random& random);

}  // namespace weightmap::fuzz
