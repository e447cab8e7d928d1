// Puts any pickles and code into a torch.jit.save archive: refused, or all of it can be read.
#include <string>

#include "fuzz/custom_mutator.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/pickle_mutator.hpp"
#include "fuzz/require.hpp"
#include "fuzz/script_input.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace weightmap;

void check(std::span<const std::byte> input) {
  static fuzz::MemoryFile file;
  file.set(fuzz::lay_out_script(fuzz::decode_script(input)));
  const Result<Checkpoint> opened =
      Checkpoint::open_descriptor(file.descriptor(), fuzz::small_limits());
  if (!opened) return fuzz::require(!opened.error().message.empty(), "a refusal without a word");
  fuzz::look_at(*opened);
}

void change_pickle(std::string& pickle, fuzz::Random& random) {
  const auto changed = fuzz::mutate_pickle(std::as_bytes(std::span(pickle)), random);
  pickle.assign(reinterpret_cast<const char*>(changed.data()), changed.size());
}

void change_sizes(std::vector<std::uint16_t>& sizes, fuzz::Random& random) {
  if (sizes.empty() || random.once_in(4)) sizes.push_back(0);
  sizes[random.below(sizes.size())] = static_cast<std::uint16_t>(random.number() % 1024);
}

std::vector<std::byte> mutate(std::span<const std::byte> bytes, fuzz::Random& random) {
  fuzz::ScriptInput input = fuzz::decode_script(bytes);
  switch (random.below(12)) {
    case 0:
      change_sizes(input.data_sizes, random);
      break;
    case 1:
      change_sizes(input.constant_sizes, random);
      break;
    case 2:
      if (input.code.empty()) input.code.push_back({"__torch__", {}});
      fuzz::mutate_bytes(input.code[random.below(input.code.size())].text);
      break;
    case 3:
    case 4:
      change_pickle(input.constants, random);
      break;
    default:
      change_pickle(input.data, random);
  }
  return fuzz::encode_script(input);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(mutate)
