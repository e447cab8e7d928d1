// Runs the experts of one layer of a GGUF file for one token, with as many of them in memory as a
// budget allows: the router chooses, what is not resident is read, and nothing else.
//
//   experts FILE LAYER TOKEN COUNT BUDGET_MIB
//
// Prints the chosen experts with their weights, then the result, then what it took. The input is
// the embedding of the token. Tensors may be float32, float16, bfloat16 or q8_0.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/half.hpp"
#include "weightmap/on_demand.hpp"

namespace {

using weightmap::DType;
using weightmap::Result;
using Vector = std::vector<float>;

int fail(const weightmap::Error& error) {
  std::cerr << error << '\n';
  return 1;
}

// A matrix in a file or in a lease: rows one after the other, of which each is a whole number of
// blocks.
struct Matrix {
  DType dtype;
  std::size_t rows, columns;
  const std::byte* data;
};

template <class T>
float element(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof value, sizeof value);
  return value;
}

// 32 elements in 34 bytes: a scale, then the integers.
float q8_0(const std::byte* data, std::size_t index) {
  const std::byte* const block = data + index / 32 * 34;
  return element<weightmap::float16>(block, 0) *
         static_cast<float>(element<std::int8_t>(block + 2, index % 32));
}

Vector row_of(const Matrix& matrix, std::size_t row) {
  Vector values(matrix.columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = row * matrix.columns + i;
    values[i] = matrix.dtype == DType::float32    ? element<float>(matrix.data, at)
                : matrix.dtype == DType::float16  ? element<weightmap::float16>(matrix.data, at)
                : matrix.dtype == DType::bfloat16 ? element<weightmap::bfloat16>(matrix.data, at)
                                                  : q8_0(matrix.data, at);
  }
  return values;
}

Vector multiply(const Matrix& matrix, const Vector& input) {
  Vector output(matrix.rows);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    const Vector weights = row_of(matrix, row);
    output[row] = std::inner_product(weights.begin(), weights.end(), input.begin(), 0.0f);
  }
  return output;
}

// The last two dimensions of a tensor; `data` is that of the expert, if it has more.
Result<Matrix> matrix_of(const weightmap::NamedTensor& tensor, const std::byte* data) {
  const auto shape = tensor.view.shape();
  const DType dtype = tensor.view.dtype();
  const bool is_known = dtype == DType::float32 || dtype == DType::float16 ||
                        dtype == DType::bfloat16 || dtype == DType::q8_0;
  if (!is_known || shape.size() < 2)
    return weightmap::failure(weightmap::ErrorCode::unsupported,
                              std::string(tensor.name) + " is nothing to multiply with here: " +
                                  std::string(to_string(dtype)));
  return Matrix{dtype, static_cast<std::size_t>(shape[shape.size() - 2]),
                static_cast<std::size_t>(shape.back()), data};
}

Result<Matrix> whole(const weightmap::Checkpoint& checkpoint, const std::string& name) {
  const auto tensor = checkpoint.get(name);
  if (!tensor) return tl::unexpected<weightmap::Error>(tensor.error());
  return matrix_of(*tensor, tensor->view.stored_bytes().data());
}

struct Choice {
  std::size_t expert;
  float weight;
};

// The experts of the highest probability.
std::vector<Choice> choose(const Vector& logits, std::size_t count) {
  const float highest = *std::ranges::max_element(logits);
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < logits.size(); ++i)
    choices.push_back({i, std::exp(logits[i] - highest) / sum});
  std::ranges::stable_sort(choices, std::ranges::greater(), &Choice::weight);
  choices.resize(std::min(count, choices.size()));
  return choices;
}

// down(silu(gate(x)) * up(x)). The parts of a unit are in the order of their names.
Result<Vector> run_expert(const weightmap::Checkpoint& checkpoint, const weightmap::Unit& unit,
                          const weightmap::Lease& lease, const Vector& input) {
  std::vector<Matrix> parts;
  for (std::size_t i = 0; i < unit.parts.size(); ++i) {
    const auto tensor = checkpoint.get(unit.parts[i].tensor);
    if (!tensor) return tl::unexpected<weightmap::Error>(tensor.error());
    const auto matrix = matrix_of(*tensor, lease.part(i).data());
    if (!matrix) return tl::unexpected<weightmap::Error>(matrix.error());
    parts.push_back(*matrix);
  }
  if (parts.size() != 3)
    return weightmap::failure(weightmap::ErrorCode::unsupported,
                              unit.name + " is not made of down, gate and up");
  Vector gate = multiply(parts[1], input);
  const Vector up = multiply(parts[2], input);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  return multiply(parts[0], gate);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string layer = std::string("blk.") + argv[2] + ".";
  const auto checkpoint = weightmap::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());
  const auto embeddings = whole(*checkpoint, "token_embd.weight");
  if (!embeddings) return fail(embeddings.error());
  const auto router = whole(*checkpoint, layer + "ffn_gate_inp.weight");
  if (!router) return fail(router.error());
  const std::size_t token = std::strtoull(argv[3], nullptr, 10);
  if (token >= embeddings->rows) {
    std::cerr << "there is no token " << token << '\n';
    return 1;
  }
  const Vector input = row_of(*embeddings, token);

  auto units = weightmap::expert_units(*checkpoint, layer + "*");
  if (!units) return fail(units.error());
  weightmap::ResidentOptions options;
  options.budget_bytes = std::strtoull(argv[5], nullptr, 10) << 20;
  const auto set = weightmap::ResidentSet::of(*checkpoint, std::move(*units), options);
  if (!set) return fail(set.error());

  const auto choices = choose(multiply(*router, input), std::strtoull(argv[4], nullptr, 10));
  std::vector<std::size_t> wanted;
  for (const Choice& choice : choices) wanted.push_back(choice.expert);
  const auto leases = set->acquire(wanted);
  if (!leases) return fail(leases.error());
  Vector result(input.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const weightmap::Unit& unit = set->units()[choices[i].expert];
    const auto output = run_expert(*checkpoint, unit, (*leases)[i], input);
    if (!output) return fail(output.error());
    std::cout << unit.name << ' ' << choices[i].weight << '\n';
    for (std::size_t at = 0; at < result.size(); ++at)
      result[at] += choices[i].weight * (*output)[at];
  }
  for (const float value : result) std::cout << value << ' ';
  const auto stats = set->stats();
  std::cout << '\n' << stats.misses << " experts read, " << stats.hits << " there before\n";
}
