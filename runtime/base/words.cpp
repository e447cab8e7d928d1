#include "runtime/base/words.hpp"

#include "weightmap/checkpoint_info.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/result.hpp"

namespace weightmap {
namespace {

constexpr std::string_view codes[] = {"io",
                                      "not_a_checkpoint",
                                      "corrupt",
                                      "unsupported",
                                      "unsafe_pickle",
                                      "limit_exceeded",
                                      "invalid_argument",
                                      "not_found",
                                      "cancelled"};
static_assert(word_of(ErrorCode::cancelled, codes) == "cancelled");

constexpr std::string_view forms[] = {"quantized",  "per_channel", "sparse_coo", "sparse_csr",
                                      "sparse_csc", "sparse_bsr",  "sparse_bsc", "nested",
                                      "meta",       "subclass",    "from_array", "chunked"};
static_assert(word_of(ComposedTensor::Form::chunked, forms) == "chunked");

constexpr std::string_view strategies[] = {"none", "calculated", "directory", "headers"};
static_assert(word_of(OffsetStrategy::headers, strategies) == "headers");

}  // namespace

std::string_view to_string(ErrorCode code) noexcept { return word_of(code, codes); }
std::string_view to_string(ComposedTensor::Form form) noexcept { return word_of(form, forms); }
std::string_view to_string(OffsetStrategy how) noexcept { return word_of(how, strategies); }

}  // namespace weightmap
