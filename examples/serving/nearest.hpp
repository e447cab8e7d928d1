// The rows of an embedding that are most like one of them, by looking at all.
#pragma once

#include <cstddef>
#include <vector>

#include "examples/serving/embedding.hpp"

namespace serving {

enum class Metric { cosine, dot };

struct Neighbour {
  std::size_t id;
  double score;
};

// At most `count` rows, best first, equal ones in the order of the matrix. Row `id` itself is left
// out, and so are rows whose score is no finite number. A row of zeros has the cosine 0 with any.
// Precondition: id < embedding.rows(), count > 0.
std::vector<Neighbour> nearest(const Embedding& embedding, std::size_t id, std::size_t count,
                               Metric metric);

}  // namespace serving
