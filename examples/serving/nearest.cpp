#include "examples/serving/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace serving {
namespace {

struct Products {
  double with_query;
  double with_itself;
};

template <class Number>
Products products(std::span<const typename Number::Stored> row, std::span<const double> query) {
  constexpr std::size_t lanes = 8;  // sums that do not wait for one another
  double with_query[lanes] = {};
  double with_itself[lanes] = {};
  const auto add = [&](std::size_t column, std::size_t lane) {
    const double value = Number::value(row[column]);
    with_query[lane] += value * query[column];
    with_itself[lane] += value * value;
  };
  const std::size_t in_lanes = row.size() - row.size() % lanes;
  for (std::size_t column = 0; column < in_lanes; column += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) add(column + lane, lane);
  for (std::size_t column = in_lanes; column < row.size(); ++column) add(column, 0);
  return {std::accumulate(with_query, with_query + lanes, 0.0),
          std::accumulate(with_itself, with_itself + lanes, 0.0)};
}

double cosine(const Products& row, double query_length) {
  const double lengths = std::sqrt(row.with_itself) * query_length;
  return lengths == 0 ? 0 : row.with_query / lengths;
}

bool is_better(const Neighbour& a, const Neighbour& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

// Keeps the best of all that are offered; the worst of them is at the front of the heap.
class Best {
 public:
  explicit Best(std::size_t count) : count_(count) {}

  void offer(const Neighbour& neighbour) {
    if (heap_.size() == count_) {
      if (!is_better(neighbour, heap_.front())) return;
      std::ranges::pop_heap(heap_, is_better);
      heap_.pop_back();
    }
    heap_.push_back(neighbour);
    std::ranges::push_heap(heap_, is_better);
  }

  std::vector<Neighbour> in_order() && {
    std::ranges::sort_heap(heap_, is_better);
    return std::move(heap_);
  }

 private:
  std::size_t count_;
  std::vector<Neighbour> heap_;
};

}  // namespace

std::vector<Neighbour> nearest(const Embedding& embedding, std::size_t id, std::size_t count,
                               Metric metric) {
  const std::vector<double> query = embedding.row(id);
  const double query_length =
      std::sqrt(std::inner_product(query.begin(), query.end(), query.begin(), 0.0));
  Best best(count);
  const auto search = [&]<class Number>(const Matrix<Number>& matrix) {
    for (std::size_t other = 0; other < matrix.rows(); ++other) {
      const Products row = products<Number>(matrix.row(other), query);
      const double score = metric == Metric::dot ? row.with_query : cosine(row, query_length);
      if (other != id && std::isfinite(score)) best.offer({other, score});
    }
  };
  std::visit(search, embedding.matrix());
  return std::move(best).in_order();
}

}  // namespace serving
