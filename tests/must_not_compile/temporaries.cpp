// Views, names and values borrow from what hands them out, so a temporary, which is gone at the end
// of the line, must not hand them out. -DWEIGHTMAP_MISUSE=ROW makes a temporary of one row's
// object.
#include <utility>

#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/tensor_view.hpp"

namespace {

enum class Row {
  none,
  archive_name,
  archive_records,
  backing,
  checkpoint_find,
  checkpoint_get,
  checkpoint_get_path,
  checkpoint_mapping,
  checkpoint_root,
  checkpoint_tensors,
  result_find,
  shared_tensor,
  slice_result,
  slice_shape,
  slice_strides,
  slice_view,
};

template <Row row, typename T>
decltype(auto) lender(T& object) {
  if constexpr (row == Row::WEIGHTMAP_MISUSE)
    return std::move(object);
  else
    return (object);
}

}  // namespace

void borrow(weightmap::ArchiveReader& reader, weightmap::Checkpoint& checkpoint,
            weightmap::Result<weightmap::Checkpoint>& opened, weightmap::SharedTensor& shared,
            weightmap::TensorSlice& slice, weightmap::Result<weightmap::TensorSlice>& sliced) {
  static_cast<void>(lender<Row::archive_name>(reader).archive_name());
  static_cast<void>(lender<Row::archive_records>(reader).records());
  static_cast<void>(weightmap::Backing(lender<Row::backing>(checkpoint)));
  static_cast<void>(lender<Row::checkpoint_find>(checkpoint).find("weight"));
  static_cast<void>(lender<Row::checkpoint_get>(checkpoint).get("weight"));
  static_cast<void>(lender<Row::checkpoint_get_path>(checkpoint).get_path({"layers", 0}));
  static_cast<void>(lender<Row::checkpoint_mapping>(checkpoint).mapping());
  static_cast<void>(lender<Row::checkpoint_root>(checkpoint).root());
  static_cast<void>(lender<Row::checkpoint_tensors>(checkpoint).tensors());
  static_cast<void>(lender<Row::result_find>(opened)->find("weight"));
  static_cast<void>(*lender<Row::shared_tensor>(shared));
  static_cast<void>(lender<Row::slice_result>(sliced)->shape());
  static_cast<void>(lender<Row::slice_shape>(slice).shape());
  static_cast<void>(lender<Row::slice_strides>(slice).strides());
  static_cast<void>(weightmap::TensorView(lender<Row::slice_view>(slice)));
}
