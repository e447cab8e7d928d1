// The transfers of sources of one folder, which use one another's connections.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "remote/transfer.hpp"

namespace weightmap::remote {

// As many as are in use at a time. Any thread.
class TransferPool {
 public:
  // Transfers that nobody else has, until this ends.
  class Use {
   public:
    explicit Use(TransferPool& pool) : pool_(pool), transfers_(pool.take()) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { pool_.give_back(std::move(transfers_)); }
    Transfers& get() const noexcept { return *transfers_; }

   private:
    TransferPool& pool_;
    std::unique_ptr<Transfers> transfers_;
  };

 private:
  std::unique_ptr<Transfers> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      ++made_;
      idle_.reserve(made_);
      return std::make_unique<Transfers>();
    }
    std::unique_ptr<Transfers> last = std::move(idle_.back());
    idle_.pop_back();
    return last;
  }
  void give_back(std::unique_ptr<Transfers> transfers) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(transfers));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Transfers>> idle_;
  std::size_t made_ = 0;
};

}  // namespace weightmap::remote
