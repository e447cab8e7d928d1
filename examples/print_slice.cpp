// Reads rows of a matrix without copying the rest, and prints them as float.
//
//   print_slice FILE TENSOR FIRST COUNT
//
// narrow() shares the bytes of the tensor. gather() is for tensors that cannot be read in place:
// not contiguous, or saved on a machine of the other byte order.
#include <cstdlib>
#include <iostream>
#include <vector>

#include "weightmap/checkpoint.hpp"

namespace {

int fail(const weightmap::Error& error) {
  std::cerr << error << '\n';
  return 1;
}

void print(const std::vector<float>& values, std::int64_t columns) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool end_of_row = (i + 1) % static_cast<std::size_t>(columns) == 0;
    std::cout << values[i] << (end_of_row ? '\n' : ' ');
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto checkpoint = weightmap::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());
  const auto matrix = checkpoint->get(argv[2]);
  if (!matrix) return fail(matrix.error());
  if (matrix->view.rank() != 2 || matrix->view.dtype() != weightmap::DType::float32) {
    std::cerr << argv[2] << " is no matrix of float32\n";
    return 1;
  }

  // An invalid range is an error, not a crash.
  const auto rows = matrix->view.narrow(0, std::atoll(argv[3]), std::atoll(argv[4]));
  if (!rows) return fail(rows.error());
  std::vector<float> values(rows->numel());
  const auto gathered = checkpoint->gather(*rows, std::as_writable_bytes(std::span(values)));
  if (!gathered) return fail(gathered.error());
  print(values, rows->shape()[1]);
}
