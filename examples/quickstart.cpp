// Opens a checkpoint, lists its tensors and reads one of them where it lies.
#include <iostream>

#include "weightmap/checkpoint.hpp"

int fail(const weightmap::Error& error) {
  std::cerr << to_string(error) << '\n';
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;  // quickstart FILE TENSOR
  const auto checkpoint = weightmap::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());

  for (const weightmap::NamedTensor& tensor : checkpoint->tensors())
    std::cout << tensor.name << ' ' << to_string(tensor.view.dtype()) << '\n';

  const auto tensor = checkpoint->get(argv[2]);
  if (!tensor) return fail(tensor.error());
  const auto values = tensor->view.as<float>();  // std::span into the mapping, nothing is copied
  if (!values) return fail(values.error());
  float sum = 0;
  for (float value : *values) sum += value;
  std::cout << tensor->name << " sums to " << sum << '\n';
}
