#include "runtime/formats/npz/listed_array.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::npz {
namespace {

Result<DType> told_dtype(std::string_view name, DType listed, const OpenOptions& options) {
  const auto told = options.dtypes.find(name);
  if (!is_opaque(listed) || told == options.dtypes.end()) return listed;
  const DType dtype = told->second;
  if (!is_blocked(dtype) && element_size(dtype) == element_size(listed)) return dtype;
  return failure(ErrorCode::invalid_argument,
                 "array " + bytes::quote(name) + " has elements of type " +
                     std::string(to_string(listed)) + ", which are no " +
                     std::string(to_string(dtype)) + " as the option dtypes says");
}

}  // namespace

Result<format::ListedTensor> list_array(std::string_view name, const ArrayHeader& header,
                                        const OpenOptions& options, format::TensorList& list) {
  TRY_ASSIGN(const DType dtype, told_dtype(name, header.dtype, options));
  std::vector<std::int64_t> sizes = header.shape;
  std::vector<std::int64_t> strides(sizes.size());
  if (header.is_fortran_order) std::ranges::reverse(sizes);
  bool is_number = bytes::row_major_strides(sizes, strides);
  if (header.is_fortran_order) std::ranges::reverse(strides);
  std::uint64_t nbytes = element_size(dtype);
  for (const std::int64_t size : header.shape)
    is_number = is_number && bytes::checked_mul(nbytes, static_cast<std::uint64_t>(size), &nbytes);
  if (!is_number)
    return failure(ErrorCode::corrupt,
                   "field \"shape\" has sizes whose product does not fit 64 bits", 0);
  format::ListedTensor tensor{};
  tensor.name = name;
  tensor.end = nbytes;
  tensor.first_dim = static_cast<std::uint32_t>(list.dims.size());
  tensor.dtype = dtype;
  tensor.rank = static_cast<std::uint8_t>(header.shape.size());
  tensor.is_viewable = true;
  list.dims.insert(list.dims.end(), header.shape.begin(), header.shape.end());
  list.dims.insert(list.dims.end(), strides.begin(), strides.end());
  return tensor;
}

}  // namespace weightmap::npz
