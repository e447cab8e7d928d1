#include "remote/ca_bundle.hpp"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace weightmap::remote {
namespace {

constexpr std::array<const char*, 5> of_distributions = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Alpine, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",                   // older ones of these
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/ssl/cert.pem",                                  // Alpine without its package of them
};

}  // namespace

Places ca_bundle_places() noexcept {
  static const char* const built_in = curl_version_info(CURLVERSION_NOW)->cainfo;
  if (built_in != nullptr) return {&built_in, 1};
  return of_distributions;
}

// The variables are those of the program curl; libcurl itself reads only those of proxies.
std::string ca_bundle(Places places) {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* file = std::getenv(name); file != nullptr && *file != '\0') return file;
  const auto found = std::find_if(places.begin(), places.end(),
                                  [](const char* file) { return ::access(file, R_OK) == 0; });
  return found == places.end() ? std::string() : *found;
}

std::string describe_ca_bundle(Places places) {
  const std::string bundle = ca_bundle(places);
  if (!bundle.empty())
    return "trusted are the authorities in " + bundle + ": set SSL_CERT_FILE for another file";
  std::string text = "no file with the certificates of trusted authorities was found (";
  for (const char* place : places) text.append(place).append(", ");
  text.replace(text.size() - 2, 2, "): set SSL_CERT_FILE");
  return text;
}

}  // namespace weightmap::remote
