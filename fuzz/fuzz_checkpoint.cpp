// Any bytes as a file that is opened: refused, or all of it can be looked at.
#include "fuzz/custom_mutator.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/require.hpp"
#include "fuzz/target.hpp"
#include "fuzz/zip_mutator.hpp"

namespace {

using namespace weightmap;

void check(std::span<const std::byte> input) {
  static fuzz::MemoryFile file;
  file.set(input);
  OpenOptions options = fuzz::small_limits();
  options.verify = Verify::chain;
  const Result<Checkpoint> opened = Checkpoint::open_descriptor(file.descriptor(), options);
  if (!opened) return fuzz::require(!opened.error().message.empty(), "a refusal without a word");
  fuzz::look_at(*opened);
  (void)opened->verify_headers();
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(weightmap::fuzz::mutate_zip)
