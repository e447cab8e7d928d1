// The file with the certificates of the authorities that TLS trusts.
#pragma once

#include <span>
#include <string>

namespace weightmap::remote {

using Places = std::span<const char* const>;

// Where the system may have it: where libcurl was built to look, or, if it was built for no system
// in particular, the places of the distributions. Valid until the process ends.
Places ca_bundle_places() noexcept;
// That of CURL_CA_BUNDLE or SSL_CERT_FILE, else the first of `places` that can be read; empty if
// none can.
std::string ca_bundle(Places places);
// Which it is and how to name another one, for a message about a server that is not trusted.
std::string describe_ca_bundle(Places places);

}  // namespace weightmap::remote
