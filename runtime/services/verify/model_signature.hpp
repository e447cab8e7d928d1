// OpenSSF Model Signing: the digests of a model's files in its signature, "model.sig".
//
//   {"dsseEnvelope": {"payloadType": "application/vnd.in-toto+json", "payload": BASE64, ...}, ...}
//
// whose payload is
//
//   {"subject": [{"digest": {"sha256": DIGEST OF ALL DIGESTS}, ...}],
//    "predicateType": "https://model_signing/signature/v1.0",
//    "predicate": {"serialization": {"method": "files", "hash_type": "sha256", ...},
//                  "resources": [{"name": "config.json", "algorithm": "sha256", "digest": HEX},
//                                ...]}}
#pragma once

#include <string_view>
#include <vector>

#include "runtime/services/verify/sum_list.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The digests only: who signed them, and whether the signature is right, is not looked at. Fails
// with corrupt for anything else, and for names that lead out of a folder; with unsupported for
// another version, another kind of digests, and files in shards. Errors name the field.
Result<std::vector<ListedSum>> read_model_signature(std::string_view json);

}  // namespace weightmap
