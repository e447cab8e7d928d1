#include "runtime/services/cuda/feeder.hpp"

#include <new>
#include <string>
#include <system_error>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/copies.hpp"

namespace weightmap::cuda {

Feeder::Feeder(Checkpoint::State& checkpoint, const UploadPlan& plan, const SlotPool& slots,
               Way way)
    : checkpoint_(checkpoint),
      plan_(plan),
      slots_(slots),
      states_(plan.batches.size()),
      all_in_slots_(way == Way::slots) {}

Result<void> Feeder::start(std::size_t threads) {
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& refusal) {
    if (threads_.empty())
      return failure(ErrorCode::io, std::string("cannot begin a thread: ") + refusal.what());
  }
  return {};
}

void Feeder::run() noexcept {
  while (const std::optional<std::size_t> taken = take_next()) {
    Result<void> done = fill_guarded(*taken);
    const std::scoped_lock lock(mutex_);
    if (!done) states_[*taken].error = std::move(done.error());
    states_[*taken].is_filled = true;
    changed_.notify_all();
  }
}

std::optional<std::size_t> Feeder::take_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return is_stopped_ || next_ == plan_.batches.size() || next_ < released_ + slots_.slots();
  });
  if (is_stopped_ || next_ == plan_.batches.size()) return std::nullopt;
  states_[next_].all_in_slot = all_in_slots_;
  return next_++;
}

Result<void> Feeder::fill(std::size_t batch) {
  const State& state = states_[batch];
  for (const Transfer& transfer : plan_.transfers_of(plan_.batches[batch])) {
    if (!state.all_in_slot && transfer.is_as_stored) {
      if (Result<void> there = demand(checkpoint_, transfer.view); !there) {
        there.error().message.insert(0, start_of_error(checkpoint_, transfer.view.bytes()));
        return there;
      }
      continue;
    }
    std::byte* const place = slots_.memory(batch) + transfer.slot_offset;
    TRY(gather(checkpoint_, transfer.view, {place, transfer.view.nbytes()}));
  }
  return {};
}

Result<void> Feeder::fill_guarded(std::size_t number) noexcept {
  try {
    return fill(number);
  } catch (const std::bad_alloc&) {
    return tl::unexpected<Error>(Error{.code = ErrorCode::io, .message = "no memory to gather"});
  }
}

bool Feeder::is_filled(std::size_t batch) const {
  const std::scoped_lock lock(mutex_);
  return states_[batch].is_filled;
}

Result<void> Feeder::wait_filled(std::size_t batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return states_[batch].is_filled; });
  if (states_[batch].error) return tl::unexpected<Error>(*states_[batch].error);
  return {};
}

const std::byte* Feeder::in_slot(std::size_t batch, const Transfer& transfer) const {
  const State& state = states_[batch];
  if (!state.all_in_slot && transfer.is_as_stored) return nullptr;
  return slots_.memory(batch) + transfer.slot_offset;
}

Result<void> Feeder::use_slot_after_all(std::size_t number) {
  {
    const std::scoped_lock lock(mutex_);
    all_in_slots_ = true;
    states_[number].all_in_slot = true;
  }
  return fill(number);
}

void Feeder::release_first() {
  const std::scoped_lock lock(mutex_);
  ++released_;
  changed_.notify_all();
}

void Feeder::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace weightmap::cuda
