// A tensor that keeps its checkpoint open, for owners that outlive the scope of the lookup.
//
//   auto checkpoint = weightmap::Checkpoint::open_shared("model.pt");
//   if (!checkpoint) return tl::unexpected(checkpoint.error());
//   auto weight = weightmap::SharedTensor::get(*checkpoint, "layers.0.attn.wq.weight");
//   if (!weight) return tl::unexpected(weight.error());
//   layer.wq = *weight;  // the file stays mapped for as long as the layer has it
//
// It is a value like a std::shared_ptr: copies share the checkpoint, and the last owner unmaps it.
// Const members may be called from any thread.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "weightmap/checkpoint.hpp"

namespace weightmap {

class SharedTensor;
template <>
inline constexpr bool lends_from_itself<SharedTensor> = true;

class SharedTensor {
 public:
  using Owner = std::shared_ptr<const Checkpoint>;

  SharedTensor() noexcept = default;  // no checkpoint, and an empty view
  // Precondition: the view belongs to the checkpoint.
  SharedTensor(Owner checkpoint, const TensorView& view) noexcept
      : checkpoint_(std::move(checkpoint)), view_(view) {}
  // Also keeps the slice's shape.
  SharedTensor(Owner checkpoint, const TensorSlice& slice)
      : checkpoint_(std::move(checkpoint)),
        slice_(std::make_shared<const TensorSlice>(slice)),
        view_(*slice_) {}

  // Fails as Checkpoint::get() does. Precondition: `checkpoint` is not null.
  static Result<SharedTensor> get(Owner checkpoint, std::string_view name) {
    const Result<NamedTensor> found = checkpoint->get(name);
    if (!found) return tl::unexpected<Error>(found.error());
    return SharedTensor(std::move(checkpoint), found->view);
  }

  const TensorView& operator*() const& noexcept WEIGHTMAP_LIFETIMEBOUND { return view_; }
  const TensorView* operator->() const& noexcept WEIGHTMAP_LIFETIMEBOUND { return &view_; }
  const Owner& checkpoint() const& noexcept WEIGHTMAP_LIFETIMEBOUND { return checkpoint_; }

  // These may dangle for a temporary.
  void operator*() const&& = delete;
  void operator->() const&& = delete;
  void checkpoint() const&& = delete;

 private:
  Owner checkpoint_;
  std::shared_ptr<const TensorSlice> slice_;  // the shape of view_ if it came from a slice
  TensorView view_;
};

}  // namespace weightmap
