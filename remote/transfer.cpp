#include "remote/transfer.hpp"

#include <cstdlib>
#include <new>
#include <string_view>

#include "remote/ca_bundle.hpp"
#include "weightmap/version.hpp"

namespace weightmap::remote {
namespace {

// 7.87.0 signs further headers, takes the hash from one of them, and has the port in the host.
constexpr unsigned first_that_signs = 0x075700;
constexpr long receive_buffer = 512 * 1024;  // libcurl's largest
constexpr std::size_t most_header_bytes = 256 * 1024;
constexpr long most_kept_connections = 160;

template <class Value>
void set(CURL* easy, CURLoption option, Value value) {
  // All options are known to the oldest libcurl that the build accepts.
  if (curl_easy_setopt(easy, option, value) == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
}

void set_protocols(CURL* easy) {
#if LIBCURL_VERSION_NUM >= 0x075500
  set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(easy, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

// Also those of a proxy that speaks TLS.
void set_certificates(CURL* easy) {
  if (const std::string bundle = ca_bundle(ca_bundle_places()); !bundle.empty()) {
    set(easy, CURLOPT_CAINFO, bundle.c_str());
    set(easy, CURLOPT_PROXY_CAINFO, bundle.c_str());
  }
  if (const char* folder = std::getenv("SSL_CERT_DIR"); folder != nullptr && *folder != '\0')
    set(easy, CURLOPT_CAPATH, folder);
}

}  // namespace

Transfers::Transfers() {
  // Once in a process, and for all its users: libcurl counts them.
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised == CURLE_OK) multi_.reset(curl_multi_init());
  if (!multi_) throw std::bad_alloc();
  curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, most_kept_connections);
  curl_multi_setopt(multi_.get(), CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
}

Transfer::Transfer(Transfers& transfers, const RequestHead& head, bool fresh,
                   std::chrono::milliseconds connect_timeout)
    : transfers_(transfers), easy_(curl_easy_init()), last_byte_(Clock::now()) {
  if (!easy_) throw std::bad_alloc();
  for (const std::string& header : head.headers) {
    curl_slist* longer = curl_slist_append(headers_.get(), header.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)headers_.release();
    headers_.reset(longer);
  }
  set_options(head, fresh, connect_timeout);
  if (curl_multi_add_handle(transfers_.get(), easy_.get()) != CURLM_OK) throw std::bad_alloc();
}

Transfer::~Transfer() { curl_multi_remove_handle(transfers_.get(), easy_.get()); }

void Transfer::set_options(const RequestHead& head, bool fresh,
                           std::chrono::milliseconds connect_timeout) {
  CURL* easy = easy_.get();
  set(easy, CURLOPT_URL, head.url.c_str());
  set_protocols(easy);
  set(easy, CURLOPT_PATH_AS_IS, 1L);
  set(easy, CURLOPT_HTTPHEADER, headers_.get());
  set(easy, CURLOPT_USERAGENT, "weightmap/" WEIGHTMAP_VERSION);
  set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy, CURLOPT_FOLLOWLOCATION, 0L);
  set(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  set(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  set_certificates(easy);
  set(easy, CURLOPT_BUFFERSIZE, receive_buffer);
  set(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set(easy, CURLOPT_FRESH_CONNECT, fresh ? 1L : 0L);
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect_timeout.count()));
#if LIBCURL_VERSION_NUM >= 0x075700
  set(easy, CURLOPT_QUICK_EXIT, 1L);  // a name that is being resolved does not hold up the end
#endif
  set(easy, CURLOPT_NOBODY, head.wants_body ? 0L : 1L);
  if (!head.user.empty()) {
    set(easy, CURLOPT_USERNAME, head.user.c_str());
    set(easy, CURLOPT_PASSWORD, head.password.c_str());
  }
#if LIBCURL_VERSION_NUM >= 0x074B00
  if (!head.sigv4.empty()) set(easy, CURLOPT_AWS_SIGV4, head.sigv4.c_str());
#endif
  set(easy, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(easy, CURLOPT_HEADERDATA, this);
  set(easy, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  set(easy, CURLOPT_WRITEDATA, this);
  set(easy, CURLOPT_PRIVATE, this);
}

// A count other than `length` ends the transfer.
std::size_t Transfer::on_header(char* text, std::size_t, std::size_t length, void* self) noexcept {
  auto& transfer = *static_cast<Transfer*>(self);
  transfer.last_byte_ = Clock::now();
  transfer.header_bytes_ += length;
  if (transfer.header_bytes_ > most_header_bytes) return 0;
  transfer.has_header_ = std::string_view(text, length) == "\r\n";
  try {
    transfer.answer_.take({text, length});
    return length;
  } catch (const std::bad_alloc&) {
    transfer.is_out_of_memory_ = true;
    return 0;
  }
}

std::size_t Transfer::on_body(char* text, std::size_t, std::size_t length, void* self) noexcept {
  auto& transfer = *static_cast<Transfer*>(self);
  transfer.last_byte_ = Clock::now();
  try {
    if (length == 0 || transfer.take(std::as_bytes(std::span(text, length)))) return length;
  } catch (const std::bad_alloc&) {
    transfer.is_out_of_memory_ = true;
  }
  return 0;
}

std::chrono::seconds Transfer::retry_after() const noexcept {
  curl_off_t seconds = 0;
  curl_easy_getinfo(easy_.get(), CURLINFO_RETRY_AFTER, &seconds);
  return std::chrono::seconds(seconds < 0 ? 0 : seconds);
}

void Transfer::check_memory() const {
  if (is_out_of_memory_) throw std::bad_alloc();
}

// libcurl keeps a line until its end, up to 100 KiB, and has no memory for more, as it says.
Result<void> Transfer::check_header(CURLcode code) const {
  constexpr int too_large = 100;  // the word for it since libcurl 8.6
  const bool is_line = code == CURLE_OUT_OF_MEMORY || static_cast<int>(code) == too_large;
  if (header_bytes_ <= most_header_bytes && (has_header_ || !is_line)) return {};
  return failure(ErrorCode::io,
                 "the server's answer has a header of more than 256 KiB, or a line of more than "
                 "100 KiB in it, or there is no memory for it");
}

Transfer& Transfer::of(CURL* handle) noexcept {
  char* self = nullptr;
  curl_easy_getinfo(handle, CURLINFO_PRIVATE, &self);
  return *reinterpret_cast<Transfer*>(self);
}

bool can_sign() noexcept {
  return LIBCURL_VERSION_NUM >= first_that_signs &&
         curl_version_info(CURLVERSION_NOW)->version_num >= first_that_signs;
}

std::string words_of(CURLcode code) {
  // The scheme of a URL was looked at, so this is its word for HTTP/0.9, which has no head.
  if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY)
    return "what the server sends is no answer of HTTP, or bytes that belong to none";
  std::string words = curl_easy_strerror(code);
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
    words += "; " + describe_ca_bundle(ca_bundle_places());
  return words;
}

bool is_out_of_reach(CURLcode code) noexcept {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT;
}

bool is_transient(CURLcode code) noexcept {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_FAILED_INIT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_LOGIN_DENIED:
      return false;
    default:
      return true;
  }
}

}  // namespace weightmap::remote
