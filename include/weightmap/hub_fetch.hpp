// Models of the Hugging Face Hub (hub_model.hpp), fetched into the cache of huggingface_hub.
//
//   auto client = weightmap::hub_client();  // remote.hpp
//   if (!client) return fail(client.error());
//   auto fetched = weightmap::fetch_to_hub_cache(**client, "hf://Qwen/Qwen3-0.6B");
//   if (!fetched) return fail(fetched.error());
//   auto checkpoint = weightmap::Checkpoint::open("Qwen/Qwen3-0.6B");
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/hub_model.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct HubFetchReport {
  std::string commit;
  std::filesystem::path snapshot;  // the folder of the commit's files in the cache
  // Of the files that were fetched; those that were in the cache already are in none.
  std::vector<FetchReport> files;
};

// Fetches the checkpoint, and the small files of the model's folder that belong to it (*.json,
// *.txt, *.jinja, *.model, tokenizer*), into the cache of huggingface_hub, whose libraries then
// find them without a network. The cache names the commit once all is there. What is cached stays.
WEIGHTMAP_API Result<HubFetchReport> fetch_to_hub_cache(HubClient& client, const std::string& name,
                                                        const FetchOptions& options = {});

}  // namespace weightmap
