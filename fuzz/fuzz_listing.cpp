// Reads any bytes as a store's listing, S3's and a web server's, and as a list of modules: refused,
// or names without a slash, of which those of a model lie in its folder on any system.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"
#include "remote/s3_page.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/model_files.hpp"
#include "weightmap/fetch.hpp"

namespace {

using namespace weightmap;
using fuzz::require;

void check_listing(const std::optional<Listing>& listing) {
  if (!listing) return;
  for (const ListedFile& file : *listing)
    require(!file.name.empty() && file.name != "." && file.name != ".." &&
                file.name.find('/') == std::string::npos,
            "a listing has the name " + file.name);
  static_cast<void>(lead_of(*listing));
  const auto beside = names_beside("model.safetensors", *listing);
  for (const std::string& name : beside.value_or(std::vector<std::string>()))
    require(sets::stays_below(name) &&
                std::ranges::find(*listing, name, &ListedFile::name) != listing->end(),
            "a file beside the model is " + name);
}

void check(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_listing(read_autoindex(text));
  for (const std::string_view prefix : {"", "store/"})
    if (const auto page = remote::read_s3_page(text, prefix)) check_listing(page->files);
  if (const auto folders = sets::module_folders(text))
    for (const std::string& folder : *folders)
      require(sets::stays_below(folder), "a module is in " + folder);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
