// Decodes a call of a rebuild function whose result is more than one dense tensor.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/formats/torch/tensor_decoder.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

class ComposedDecoder {
 public:
  // `pickle_offset` and `rank_limit` as in TensorDecoder.
  ComposedDecoder(std::uint64_t pickle_offset, std::uint32_t rank_limit) noexcept
      : pickle_offset_(pickle_offset), rank_limit_(rank_limit) {}

  // Decodes what `call` makes, except its name and parts. Precondition: is_composed(call.function).
  // Returns nullopt for an unknown layout. Fails with corrupt if the arguments make no tensor.
  Result<std::optional<ComposedTensor>> decode(const TensorCall& call) const;
  // Does the same for a dense tensor of `spec` that _rebuild_qtensor makes.
  Result<ComposedTensor> decode_quantized(const TensorCall& call, const TensorSpec& spec) const;

 private:
  using Decoded = Result<std::optional<ComposedTensor>>;

  Decoded decode_sparse(const Value& arguments, std::uint32_t position) const;
  Decoded decode_script_sparse(const Value& arguments, std::uint32_t position) const;
  Decoded decode_nested(const Value& arguments, std::uint32_t position) const;
  static Decoded decode_jagged(const Value& arguments);
  Decoded decode_meta(const Value& arguments, std::uint32_t position) const;
  Decoded decode_subclass(const Value& arguments, std::uint32_t position) const;
  Decoded decode_from_array(const Value& arguments, std::uint32_t position) const;
  Result<std::vector<std::int64_t>> dims(const Value& value, std::uint32_t position) const;

  [[gnu::cold]] tl::unexpected<Error> corrupt(std::uint32_t position, std::string message) const {
    return failure(ErrorCode::corrupt, std::move(message), pickle_offset_ + position);
  }

  std::uint64_t pickle_offset_;
  std::uint32_t rank_limit_;
};

}  // namespace weightmap::torch
