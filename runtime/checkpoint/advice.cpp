// How the pages of a checkpoint are read, as advise() has set it.

#include "runtime/checkpoint/advice.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "mmap/page_loader.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/name_pattern.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap {
namespace {

// Positions of the tensors whose names match, and of the pieces of those that are in several.
std::vector<std::size_t> tensors_to_advise(const Checkpoint& checkpoint,
                                           const std::string& pattern) {
  std::vector<std::size_t> found = match_tensors(checkpoint, pattern);
  const NamePattern compiled(pattern);
  for (const ComposedTensor& whole : composed_tensors(checkpoint))
    if (whole.form == ComposedTensor::Form::chunked &&
        (whole.name == pattern || compiled.matches(whole.name)))
      for (std::size_t part = 0; part < whole.part_count; ++part)
        found.push_back(whole.first_part + part);
  return found;
}

}  // namespace

Result<void> Checkpoint::State::advise(ByteRange range, weightmap::Access how) {
  const bool ahead = how == weightmap::Access::normal;
  Result<void> done = random_access.with([&](bytes::RangeSet& random) -> Result<void> {
    TRY(mmap::allow_readahead(mapping, range.offset, range.length, ahead));
    if (const mmap::Mapping* const writable = copy_on_write.load(std::memory_order_acquire))
      TRY(mmap::allow_readahead(*writable, range.offset, range.length, ahead));
    if (ahead)
      random.remove(range);
    else
      random.add(range);
    return {};
  });
  if (done) return done;
  return tl::unexpected<Error>(sources.at(range.offset).about(std::move(done.error())));
}

void Checkpoint::State::allow_readahead(const mmap::Mapping& of, bool allowed) {
  random_access.with([&](bytes::RangeSet& random) {
    mmap::allow_readahead(of, allowed);
    if (!allowed) return;
    for (const ByteRange& range : random.ranges())
      static_cast<void>(mmap::allow_readahead(of, range.offset, range.length, false));
  });
}

std::vector<ByteRange> Checkpoint::State::not_random(ByteRange range) {
  return random_access.with(
      [range](const bytes::RangeSet& random) { return random.missing(range); });
}

Result<void> Checkpoint::State::advise(const TensorView& view, weightmap::Access how) {
  TRY(check_view_memory());
  TRY(view.check_no_fault());
  const std::span<const std::byte> bytes = view.stored_bytes();
  if (bytes.empty() || is_in_memory()) return {};
  const std::optional<std::uint64_t> position = position_of(bytes);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  return advise({*position, bytes.size()}, how);
}

Result<void> advise_as_opened(const Checkpoint& checkpoint) {
  Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  for (const auto& [pattern, access] : state.options.access) {
    const std::vector<std::size_t> found = tensors_to_advise(checkpoint, pattern);
    if (found.empty())
      return failure(ErrorCode::invalid_argument, "the option access has " + bytes::quote(pattern) +
                                                      ", which matches the name of no tensor");
    if (state.view_memory != ViewMemory::mapped) continue;
    for (const std::size_t index : found)
      TRY(state.advise(checkpoint.tensors()[index].view, access));
  }
  return {};
}

}  // namespace weightmap
