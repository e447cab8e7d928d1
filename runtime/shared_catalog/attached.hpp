// A catalog that another process made, as a checkpoint uses it.
#pragma once

#include "mmap/process/shared_block.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/shared_catalog/publish_catalog.hpp"
#include "runtime/shared_catalog/published.hpp"

namespace weightmap {

class Attached final : public ForeignCatalog {
 public:
  // `published` lies in `block`. `is_file`: in the runtime directory; else it came as a descriptor.
  // `state` outlives this.
  Attached(Checkpoint::State& state, os::SharedBlock block, catalog::Published published,
           bool is_file)
      : state_(state),
        block_(std::move(block)),
        published_(std::move(published)),
        is_file_(is_file) {}

  const catalog::Catalog& catalog() const noexcept override { return published_.catalog(); }
  std::optional<std::uint32_t> find(std::string_view name) noexcept override {
    return published_.find(name);
  }
  bool check_entry(std::size_t index) noexcept override { return published_.check_entry(index); }
  bool check_storage(std::size_t index) noexcept override {
    return published_.check_storage(index);
  }
  bool check_all() noexcept override { return published_.check_all(); }
  void was_damaged() noexcept override {
    if (is_file_) replace_damaged_catalog(state_);
  }

 private:
  Checkpoint::State& state_;
  os::SharedBlock block_;
  catalog::Published published_;
  bool is_file_;
};

}  // namespace weightmap
