// A Result that nobody looks at hides a failure: a copy that failed leaves garbage in the buffer.
// (That options can be given by name for some fields and not others, without a warning, shows here,
// too.)
#include "weightmap/checkpoint.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/warmer.hpp"

bool copy(const std::filesystem::path& path, const weightmap::TensorView& view,
          std::span<std::byte> out) {
#ifdef WEIGHTMAP_MISUSE
  view.gather(out);
  return !path.empty();
#else
  const auto checkpoint =
      weightmap::Checkpoint::open(path, {.protection = weightmap::Protection::guard});
  if (!checkpoint || !weightmap::stage(path, {.budget_bytes = 4096})) return false;
  if (!weightmap::NewFile::create(path, {.mode = 0600})) return false;
  const auto warmer = weightmap::Warmer::start(*checkpoint, {.budget_bytes = 4096});
  return warmer && view.gather(out).has_value();
#endif
}
