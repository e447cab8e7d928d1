// Passes a tensor of a checkpoint to LibTorch without copying it.
//
//   libtorch_tensor FILE TENSOR
//
// LibTorch's own torch::pickle_load() copies. The tensors from to_torch() lie in the mapping, share
// their pages with all processes that have the file open, and keep it open.
#include <ATen/ATen.h>

#include <iostream>
#include <optional>

#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

namespace {

// Returns nullopt for types that this example does not support: quantized and packed ones.
std::optional<at::ScalarType> scalar_type(weightmap::DType dtype) {
  using enum weightmap::DType;
  switch (dtype) {
    case float64:
      return at::kDouble;
    case float32:
      return at::kFloat;
    case float16:
      return at::kHalf;
    case bfloat16:
      return at::kBFloat16;
    case float8_e4m3fn:
      return at::kFloat8_e4m3fn;
    case float8_e5m2:
      return at::kFloat8_e5m2;
    case int64:
      return at::kLong;
    case int32:
      return at::kInt;
    case int16:
      return at::kShort;
    case int8:
      return at::kChar;
    case uint8:
      return at::kByte;
    case boolean:
      return at::kBool;
    case complex64:
      return at::kComplexFloat;
    case complex128:
      return at::kComplexDouble;
    default:
      return std::nullopt;
  }
}

// LibTorch has no read-only memory: an in-place operation on a read-only mapping would end the
// process. So this uses the copy-on-write mapping, where such an operation copies the pages that it
// changes, invisibly to the file and other processes.
weightmap::Result<at::Tensor> to_torch(const weightmap::SharedTensor& tensor) {
  const weightmap::TensorView& view = *tensor;
  const std::optional<at::ScalarType> type = scalar_type(view.dtype());
  if (!type || view.is_foreign_byte_order() || view.is_conjugate() || view.is_negative())
    return weightmap::failure(weightmap::ErrorCode::unsupported,
                              "LibTorch cannot read this tensor in place");
  if (view.numel() == 0) return at::empty(at::IntArrayRef(view.shape().data(), view.rank()), *type);
  const auto& checkpoint = *tensor.checkpoint();
  const auto memory = weightmap::Backing(checkpoint).copy_on_write();
  if (!memory) return tl::unexpected<weightmap::Error>(memory.error());
  std::byte* const data = memory->data() + (view.data() - checkpoint.mapping().data());
  const auto keep = [tensor](void*) {};  // the file stays open as long as the at::Tensor exists
  return at::from_blob(data, at::IntArrayRef(view.shape().data(), view.rank()),
                       at::IntArrayRef(view.strides().data(), view.rank()), keep,
                       at::TensorOptions(*type));
}

int fail(const weightmap::Error& error) {
  std::cerr << error << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto checkpoint = weightmap::Checkpoint::open_shared(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());
  const auto found = weightmap::SharedTensor::get(*checkpoint, argv[2]);
  if (!found) return fail(found.error());
  const weightmap::Result<at::Tensor> tensor = to_torch(*found);
  if (!tensor) return fail(tensor.error());
  std::cout << tensor->toString() << ' ' << tensor->sizes() << " sums to "
            << tensor->to(at::kDouble).sum().item<double>() << '\n';
  // Writes to private pages; the checkpoint is unchanged.
  tensor->zero_();
}
