// A model of the hub as it was named, and as the hub lists it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/sets/hub_cache.hpp"
#include "runtime/sets/hub_listing.hpp"
#include "weightmap/hub_model.hpp"

namespace weightmap {

// "hf://org/name@revision/file". Fails with invalid_argument for anything else.
Result<sets::HubName> parse_hub_url(const std::string& text);

// Asks which commit the revision is, and for its files.
Result<sets::HubListing> list_hub_model(HubClient& client, const sets::HubName& name);

// Opens a file of this commit, as long as the client lives. An index is read as a whole, since the
// hub need not serve ranges of the files that are in git itself.
Result<std::unique_ptr<RangeSource>> open_hub_file(HubClient& client, const sets::HubName& name,
                                                   const std::string& commit,
                                                   const std::string& file);

// Where a file of this commit is, for HubClient.
std::string hub_path(const sets::HubName& name, const std::string& commit, std::string_view file);

}  // namespace weightmap
