// The extension module weightmap._curl: what of weightmap.remote needs libcurl, which takes longer
// to load than all of weightmap._core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/src/asking.hpp"
#include "python/src/text.hpp"
#include "python/src/url_source.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// Python's signer as the library's.
std::function<Result<std::string>(const std::string&, bool)> signer_of(nb::handle signer) {
  if (signer.is_none()) return {};
  return [held = hold_object(nb::borrow(signer))](const std::string& url, bool again) {
    return asking([&] { return to_utf8((*held)(to_str(url), again)); });
  };
}

nb::capsule opener(std::string url, unsigned connections, unsigned retries,
                   std::uint64_t deadline_milliseconds, std::vector<std::string> headers,
                   nb::handle signer, bool unproven) {
  RemoteOptions options;
  options.connections = connections;
  options.retries = retries;
  options.deadline = std::chrono::milliseconds(deadline_milliseconds);
  options.headers = std::move(headers);
  options.signer = signer_of(signer);
  options.unproven = unproven;
  auto open =
      std::make_unique<UrlSource::Open>([url = std::move(url), options = std::move(options)](
                                            UrlSource::GoesOn goes_on, bool is_one_call) {
        RemoteOptions used = options;
        used.goes_on = std::move(goes_on);
        if (is_one_call && used.deadline.count() != 0)
          used.until = std::chrono::steady_clock::now() + used.deadline;
        return open_url(url, used);
      });
  return nb::capsule(open.release(), opener_name,
                     [](void* made) noexcept { delete static_cast<UrlSource::Open*>(made); });
}

}  // namespace
}  // namespace weightmap::python

NB_MODULE(_curl, module) {
  nanobind::set_leak_warnings(false);
  module.doc() = "libcurl as weightmap.remote uses it.";
  module.def("opener", weightmap::python::opener, nanobind::arg("url"),
             nanobind::arg("connections"), nanobind::arg("retries"),
             nanobind::arg("deadline_milliseconds"), nanobind::arg("headers"),
             nanobind::arg("signer").none(), nanobind::arg("unproven"),
             nanobind::sig("def opener(url: str, connections: int, retries: int, "
                           "deadline_milliseconds: int, headers: list[str], "
                           "signer: typing.Callable[[str, bool], str] | None, unproven: bool, "
                           "/) -> typing.Any"),
             "What opens this URL, for _core.url_source().");
}
