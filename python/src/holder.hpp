// Keeps a mapping alive: every Python object that can reach its bytes shares one Holder.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::python {

// By what a checkpoint was opened, so that another process can do so, too.
struct Origin {
  std::string file;        // as it was given, or "descriptor 5"
  OpenOptions options;     // as they were given: what is not set is up to the environment
  bool is_remote = false;  // then no path leads to it
};

class Holder {
 public:
  Holder(Checkpoint checkpoint, Origin origin)
      : Holder(std::make_shared<const Checkpoint>(std::move(checkpoint)), std::move(origin)) {}
  // `why_no_bytes`: what is said to those who ask for more than metadata; empty if all is there.
  Holder(std::shared_ptr<const Checkpoint> checkpoint, Origin origin,
         std::string why_no_bytes = {}) noexcept
      : checkpoint_(std::move(checkpoint)),
        origin_(std::move(origin)),
        why_no_bytes_(std::move(why_no_bytes)) {}
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  const Checkpoint& checkpoint() const noexcept { return *checkpoint_; }
  const Origin& origin() const noexcept { return origin_; }

  // Fails with unsupported where the bytes of tensors are not there. To be asked before any of them
  // is read or passed on.
  Result<void> check_bytes() const {
    if (why_no_bytes_.empty()) return {};
    return tl::unexpected<Error>(
        {ErrorCode::unsupported, why_no_bytes_, Error::no_offset, origin_.file});
  }

  // Backing::lend(); a write to what is only read is told before it ends the process.
  Result<std::span<std::byte>> lend(std::uint64_t storage_bytes,
                                    std::optional<CopyOnWrite> how = {}) const {
    if (Result<void> there = check_bytes(); !there) return tl::unexpected<Error>(there.error());
    Result<std::span<std::byte>> lent = Backing(*checkpoint_).lend(storage_bytes, how);
    if (lent && lent->data() == checkpoint_->mapping().data())
      Backing(*checkpoint_).tell_refused_writes();
    return lent;
  }

  // Position among Backing::storage().
  std::optional<std::size_t> find_storage(std::string_view key) const;

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  Origin origin_;
  std::string why_no_bytes_;
  mutable std::once_flag storages_listed_;
  mutable std::unordered_map<std::string_view, std::uint32_t> storages_;
};

using Owner = std::shared_ptr<const Holder>;

inline std::optional<std::size_t> Holder::find_storage(std::string_view key) const {
  std::call_once(storages_listed_, [this] {
    const std::size_t count = Backing(*checkpoint_).storage_count();
    storages_.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i)
      storages_.emplace(Backing(*checkpoint_).storage(i).key, i);
  });
  const auto known = storages_.find(key);
  if (known == storages_.end()) return std::nullopt;
  return known->second;
}

}  // namespace weightmap::python
