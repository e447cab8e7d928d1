#include "runtime/checkpoint/refused_write.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/checkpoint/state.hpp"
#include "runtime/system/process/standard_error.hpp"
#include "weightmap/backing.hpp"

namespace weightmap {
namespace {

// A line of text in a fixed buffer, cut at its end.
class Line {
 public:
  void add(std::string_view text) noexcept {
    for (const char c : text) put(c);
  }
  // Names come from the file and must not control a terminal.
  void add_name(std::string_view name) noexcept {
    constexpr std::size_t most = 300;
    for (const char c : name.substr(0, most)) put(c >= ' ' && c <= '~' ? c : '?');
    if (name.size() > most) add("...");
  }
  void add(std::uint64_t number) noexcept {
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    add(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
  }
  std::string_view text() const noexcept { return {characters_.data(), length_}; }

 private:
  void put(char c) noexcept {
    if (length_ < characters_.size()) characters_[length_++] = c;
  }

  std::array<char, 1024> characters_;
  std::size_t length_ = 0;
};

void add_tensor_at(Line& line, const Checkpoint::State& state, std::uint64_t position) noexcept {
  const std::optional<std::size_t> index = state.tensors.find_at(position);
  if (!index) return line.add("a byte of no tensor");
  line.add("tensor \"");
  line.add_name(state.listed().name(*index));
  line.add("\"");
}

}  // namespace

void tell_refused_write(const void* context, std::uint64_t position) noexcept {
  const auto& state = *static_cast<const Checkpoint::State*>(context);
  const SourceFile& file = state.sources.at(position);
  Line line;
  line.add("weightmap: a write to ");
  add_tensor_at(line, state, position);
  line.add(" of ");
  line.add_name(file.shown_name);
  line.add(", at byte ");
  line.add(position - file.base());
  line.add(", which is mapped to be read only: copy_on_write=True lets it be written to\n");
  os::write_standard_error(line.text());
}

void Backing::tell_refused_writes() const {
  Checkpoint::State& state = *state_;
  if (state.view_memory != ViewMemory::mapped) return;
  if (state.info.writable || state.info.protection == Protection::guard) return;
  if (state.write_watch.load(std::memory_order_acquire) != nullptr) return;
  Result<mmap::Guard> watch =
      mmap::Guard::against_writes(state.mapping.bytes(), {tell_refused_write, &state});
  auto made = std::make_unique<const mmap::Guard>(watch ? std::move(*watch) : mmap::Guard());
  const mmap::Guard* none = nullptr;
  if (state.write_watch.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel))
    static_cast<void>(made.release());
}

}  // namespace weightmap
