// Opens a checkpoint, lists its tensors and adds up one of them where it lies.
#include <iostream>
#include <numeric>

#include "weightmap/weightmap.hpp"

int fail(const weightmap::Error& error) {
  std::cerr << error << '\n';
  return 1;
}

template <class T>
weightmap::Result<double> sum_of(const weightmap::NamedTensor& tensor) {
  return tensor.as<T>().transform([](std::span<const T> values) {  // into the mapping: no copy
    return std::accumulate(values.begin(), values.end(), 0.0);
  });
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;  // quickstart FILE TENSOR
  const auto checkpoint = weightmap::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());

  for (const weightmap::NamedTensor& tensor : checkpoint->tensors())
    std::cout << tensor.name << ' ' << to_string(tensor.view.dtype()) << '\n';

  const auto tensor = checkpoint->get(argv[2]);
  if (!tensor) return fail(tensor.error());
  const weightmap::DType dtype = tensor->view.dtype();
  const auto sum = dtype == weightmap::DType::float16    ? sum_of<weightmap::float16>(*tensor)
                   : dtype == weightmap::DType::bfloat16 ? sum_of<weightmap::bfloat16>(*tensor)
                                                         : sum_of<float>(*tensor);
  if (!sum) return fail(sum.error());
  std::cout << tensor->name << " sums to " << *sum << '\n';
}
