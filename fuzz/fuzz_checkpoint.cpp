// Opens any bytes as a file: it is refused, or all of it can be read. Its globals are listed, and
// none of them is one for which the open would have been refused.
#include <algorithm>
#include <string>

#include "fuzz/look_checkpoint.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/target.hpp"
#include "fuzz/zip_mutator.hpp"
#include "runtime/services/inspect/list_globals.hpp"

namespace {

using namespace weightmap;

bool has(const PickleGlobals& pickle, GlobalVerdict verdict) {
  return std::ranges::any_of(
      pickle.globals, [verdict](const NamedGlobal& global) { return global.verdict == verdict; });
}

// Compares the pickles that an open reads; the file may contain others.
void compare_globals(const FileGlobals& globals, const Result<Checkpoint>& opened) {
  for (const PickleGlobals& pickle : globals.pickles) {
    if (pickle.record != "data.pkl" || pickle.is_hidden) continue;
    fuzz::require(!has(pickle, GlobalVerdict::harmful), "a file with a harmful name opens");
    if (opened->info().names_torch_safe_only)
      fuzz::require(!has(pickle, GlobalVerdict::unknown) && !has(pickle, GlobalVerdict::plain_data),
                    "a name counts as safe, and is not");
  }
}

void check(std::span<const std::byte> input) {
  static fuzz::MemoryFile file;
  file.set(input);
  OpenOptions options = fuzz::small_limits();
  options.verify = Verify::chain;
  const Result<Checkpoint> opened = Checkpoint::open_descriptor(file.descriptor(), options);
  const Result<FileGlobals> globals =
      list_globals("/proc/self/fd/" + std::to_string(file.descriptor()), options);
  if (!opened) return fuzz::require(!opened.error().message.empty(), "a refusal without a word");
  if (globals) compare_globals(*globals, opened);
  fuzz::look_at(*opened);
  (void)verify_headers(*opened);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(weightmap::fuzz::mutate_zip)
