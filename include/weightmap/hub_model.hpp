// Models of the Hugging Face Hub: "hf://org/name", "hf://org/name@revision", and with a file of it
// "hf://org/name@revision/model-q4.gguf", where a slash in the revision is written %2F.
//
// A name without a file means the model's checkpoint, by the rules for folders (checkpoint.hpp).
// Where it leads is asked for once; from then on all is of one commit.
#pragma once

#include <memory>
#include <string>

#include "weightmap/export.hpp"
#include "weightmap/range_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// How the hub is asked; libweightmap_remote has one. One thread at a time may call it. Paths begin
// with a slash, follow the hub's address, and are percent-encoded.
class WEIGHTMAP_API HubClient {
 public:
  virtual ~HubClient() = default;
  // The body of an answer: "/api/models/org/name/revision/main?blobs=true". Fails with not_found
  // if there is none. At most 64 MiB.
  virtual Result<std::string> get(const std::string& path) = 0;
  // A file: "/org/name/resolve/COMMIT/model.safetensors".
  virtual Result<std::unique_ptr<RangeSource>> open(const std::string& path) = 0;
};

// What the environment says of the hub: HF_ENDPOINT, and HF_TOKEN or the file HF_TOKEN_PATH,
// $HF_HOME/token or ~/.cache/huggingface/token.
struct HubAccess {
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string token = {};                           // a secret; empty: none
  std::string token_from = {};                      // for messages: "HF_TOKEN", or the file's path
};
WEIGHTMAP_API HubAccess hub_access();

// A source that finds out by identify() which file it is. Fails with invalid_argument for what is
// no such name.
WEIGHTMAP_API Result<std::unique_ptr<RangeSource>> open_hub_model(std::shared_ptr<HubClient> client,
                                                                  const std::string& name);

}  // namespace weightmap
