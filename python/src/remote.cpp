// What weightmap.remote is built on.
#include "weightmap/remote.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/src/asking.hpp"
#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/errors.hpp"
#include "python/src/exported_memory.hpp"
#include "python/src/holder.hpp"
#include "python/src/long_call.hpp"
#include "python/src/own_source.hpp"
#include "python/src/tensor.hpp"
#include "python/src/text.hpp"
#include "python/src/url_source.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

constexpr const char* metadata_only =
    "has only its metadata here; weightmap.remote.stage() brings the bytes";

constexpr const char* on_its_way =
    "has only its metadata here: the bytes are on their way, and wait(name) of its Staging returns "
    "a tensor once they have come";

// A remote checkpoint on its way into shared memory. Belongs to the process that started it. Needs
// the GIL.
class RemoteStaging {
 public:
  struct Running;  // may end in any thread, with the GIL or without
  // Needs no GIL.
  static Result<std::shared_ptr<Running>> start(std::unique_ptr<RangeSource> source,
                                                const RemoteStageOptions& options);
  // `watched` is what the options' progress tells.
  RemoteStaging(std::shared_ptr<Running> running, const std::string& name,
                std::shared_ptr<Watched> watched);
  RemoteStaging(RemoteStaging&&) noexcept = default;
  RemoteStaging& operator=(RemoteStaging&&) = delete;
  ~RemoteStaging();  // stop()

  // Raises in a forked child.
  Staging& staging() const;
  // Staging::stop(); nothing in a forked child. No other thread may be in finish() then.
  void stop() const noexcept;
  const std::shared_ptr<Watched>& watched() const noexcept { return watched_; }
  const Owner& metadata() const noexcept { return metadata_; }
  // For tensors whose bytes have arrived.
  const Owner& with_bytes() const noexcept { return with_bytes_; }

 private:
  std::shared_ptr<Running> running_;
  std::shared_ptr<Watched> watched_;
  Owner metadata_, with_bytes_;  // keep running_
};

struct RemoteStaging::Running {
  Staging staging;
  const pid_t process = ::getpid();

  // Its thread, which may wait for the GIL, is not there in a forked child.
  bool is_here() const noexcept { return Py_IsInitialized() && process == ::getpid(); }

  static void end(Running* running) {
    if (!running->is_here()) return;
    const nb::gil_scoped_acquire gil;  // which the caller has, or has not
    without_gil([running] { delete running; });
  }
};

Result<std::shared_ptr<RemoteStaging::Running>> RemoteStaging::start(
    std::unique_ptr<RangeSource> source, const RemoteStageOptions& options) {
  TRY_ASSIGN(Staging staging, start_staging(std::move(source), options));
  return std::shared_ptr<Running>(new Running{std::move(staging)}, Running::end);
}

RemoteStaging::RemoteStaging(std::shared_ptr<Running> running, const std::string& name,
                             std::shared_ptr<Watched> watched)
    : running_(std::move(running)), watched_(std::move(watched)) {
  const std::shared_ptr<const Checkpoint> checkpoint(running_, &running_->staging.checkpoint());
  metadata_ = std::make_shared<const Holder>(checkpoint, Origin{name, {}, true}, on_its_way);
  with_bytes_ = std::make_shared<const Holder>(checkpoint, Origin{name, {}, true});
}

RemoteStaging::~RemoteStaging() {
  if (running_) stop();
}

void RemoteStaging::stop() const noexcept {
  if (!running_->is_here()) return;
  without_gil([this] { running_->staging.stop(); });
}

Staging& RemoteStaging::staging() const {
  if (!running_->is_here())
    raise({ErrorCode::invalid_argument, "is staged by the process that began it, not by a fork",
           Error::no_offset, metadata_->origin().file});
  return running_->staging;
}

std::unique_ptr<UrlSource> url_source(const nb::capsule& opener) {
  const auto& open = *static_cast<const UrlSource::Open*>(opener.data(opener_name));
  return value_or_raise(without_gil([&] { return UrlSource::make(open); }));
}

// `source` is a UrlSource, or what bridge.py makes of an object.
std::unique_ptr<RangeSource> source_of(nb::handle source, std::shared_ptr<Watched> watched) {
  if (!nb::isinstance<UrlSource>(source)) return own_source(source);
  const auto& opened = nb::cast<const UrlSource&>(source);
  return value_or_raise(without_gil([&] { return opened.open(goes_on(std::move(watched))); }));
}

RemoteVersion version_at_url(UrlSource& source) {
  LongCall call;
  return value_or_raise(call.run([&] { return source.version(call.progress()); }));
}

std::size_t read_from_url(UrlSource& source, std::uint64_t offset, nb::handle buffer) {
  const WritableBuffer memory(buffer);
  LongCall call;
  value_or_raise(call.run([&] { return source.read(offset, memory.bytes(), call.progress()); }));
  return memory.bytes().size();
}

nb::dict range_counts(const RangeCounts& counts) {
  nb::dict fields;
  fields["requests"] = counts.requests;
  fields["retries"] = counts.retries;
  fields["hedges"] = counts.hedges;
  fields["bytes"] = counts.bytes;
  fields["bytes_twice"] = counts.bytes_twice;
  return fields;
}

const char* sum_from(SumFrom from) noexcept {
  if (from == SumFrom::nobody) return "";
  if (from == SumFrom::beside) return "SHA256SUMS";
  return from == SumFrom::store ? "store" : "given";
}

nb::dict fetch_report(const FetchReport& report) {
  nb::dict fields = range_counts(report.counts);
  fields["path"] = to_bytes(report.path.native());
  fields["file_bytes"] = report.file_bytes;
  fields["tag"] = to_str(report.version.tag);
  fields["version_id"] = to_str(report.version.id);
  fields["resumed_bytes"] = report.resumed_bytes;
  fields["verified_bytes"] = report.verified_bytes;
  fields["summed_bytes"] = report.summed_bytes;
  fields["sum_from"] = sum_from(report.sum_from);
  fields["has_composite_sum"] = report.has_composite_sum;
  fields["in_one_request"] = report.in_one_request;
  fields["seconds"] = seconds(report.time);
  return fields;
}

OpenCheckpoint read_metadata(nb::handle source) {
  LongCall call;
  std::unique_ptr<RangeSource> from = source_of(source, call.watched());
  std::string name = from->name();
  OpenOptions options;
  options.progress = call.progress();
  Result<Checkpoint> opened = call.run([&] { return open_metadata(std::move(from), options); });
  auto checkpoint = std::make_shared<const Checkpoint>(value_or_raise(std::move(opened)));
  return {std::make_shared<const Holder>(std::move(checkpoint), Origin{std::move(name), {}, true},
                                         metadata_only)};
}

nb::list files_of_model(nb::handle source) {
  LongCall call;
  std::unique_ptr<RangeSource> from = source_of(source, call.watched());
  nb::list files;
  for (const ModelFile& file :
       value_or_raise(call.run([&] { return model_files(std::move(from)); }))) {
    nb::dict fields;
    fields["name"] = to_str(file.name);
    fields["bytes"] = file.version.size;
    fields["tag"] = to_str(file.version.tag);
    fields["version_id"] = to_str(file.version.id);
    fields["sha256"] =
        file.sum.sha256 ? nb::object(nb::bytes(file.sum.sha256->data(), 32)) : nb::none();
    fields["is_weights"] = file.is_weights;
    files.append(fields);
  }
  return files;
}

// Digests of 32 bytes by the names of files.
std::map<std::string, std::array<std::byte, 32>> digests_of(const nb::dict& sums) {
  std::map<std::string, std::array<std::byte, 32>> digests;
  for (const auto& [name, digest] : sums) {
    const std::string bytes = text_of(nb::cast<nb::bytes>(digest));
    auto& sum = digests[to_utf8(nb::cast<nb::str>(name))];
    std::memcpy(sum.data(), bytes.data(), std::min(bytes.size(), sum.size()));
  }
  return digests;
}

FetchOptions fetch_options(std::vector<std::string> order, bool verify, std::uint64_t chunk_bytes,
                           const nb::dict& sums, bool require_digest, Progress progress) {
  FetchOptions options;
  options.require_digest = require_digest;
  options.sha256 = digests_of(sums);
  options.order = std::move(order);
  options.verify = verify;
  if (chunk_bytes != 0) options.chunk_bytes = chunk_bytes;
  options.progress = std::move(progress);
  return options;
}

RemoteStaging begin_staging(nb::handle source, std::vector<std::string> order, bool verify,
                            std::uint64_t chunk_bytes, const nb::bytes& name,
                            std::uint64_t budget_bytes, const nb::dict& sums, bool require_digest) {
  const auto watched = std::make_shared<Watched>();
  std::unique_ptr<RangeSource> from = source_of(source, watched);
  const std::string called = from->name();
  RemoteStageOptions options;
  options.fetch = fetch_options(std::move(order), verify, chunk_bytes, sums, require_digest,
                                progress_of(watched));
  options.name = text_of(name);
  options.budget_bytes = budget_bytes;
  LongCall call(Py_None, watched);
  const auto running = call.run([&] { return RemoteStaging::start(std::move(from), options); });
  return {value_or_raise(running), called, watched};
}

// Ctrl-C ends the staging.
Tensor wait_for(const RemoteStaging& self, const nb::str& name) {
  const std::string tensor = to_utf8(name);
  const Staging& staging = self.staging();
  LongCall call(Py_None, self.watched());
  value_or_raise(call.run([&] { return staging.wait(tensor); }));
  return {self.with_bytes(), value_or_raise(staging.checkpoint().get(tensor))};
}

StagedFile finish_staging(const RemoteStaging& self, nb::handle progress) {
  Staging& staging = self.staging();
  LongCall call(progress, self.watched());
  return value_or_raise(call.run([&] { return staging.finish(); }));
}

nb::list fetch_to(nb::handle source, const nb::bytes& path, bool is_folder,
                  std::vector<std::string> order, bool verify, std::uint64_t chunk_bytes,
                  bool replaces, const nb::dict& sums, bool require_digest, nb::handle progress) {
  const std::filesystem::path target = text_of(path);
  LongCall call(progress);
  std::unique_ptr<RangeSource> from = source_of(source, call.watched());
  const FetchOptions options =
      fetch_options(std::move(order), verify, chunk_bytes, sums, require_digest, call.progress());
  const auto fetched = call.run([&]() -> Result<std::vector<FetchReport>> {
    if (is_folder) return fetch_into(std::move(from), target, options);
    return fetch(*from, target, options, replaces).transform([](const FetchReport& report) {
      return std::vector{report};
    });
  });
  nb::list reports;
  for (const FetchReport& report : value_or_raise(fetched)) reports.append(fetch_report(report));
  return reports;
}

// A Python function as FetchOptions::accept, which may outlive neither of these. What it raises is
// left in `raised`.
decltype(FetchOptions::accept) accept_by(nb::handle check, std::exception_ptr& raised) {
  if (check.is_none()) return {};
  return [check, &raised](const std::filesystem::path& folder) -> Result<void> {
    const nb::gil_scoped_acquire gil;
    try {
      check(to_bytes(folder.native()));
      return {};
    } catch (const std::exception& error) {
      raised = std::current_exception();
      return tl::unexpected<Error>(error_of(error));
    }
  };
}

nb::dict fetch_version(nb::handle source, const nb::bytes& path, std::vector<std::string> order,
                       bool verify, std::uint64_t chunk_bytes, const nb::dict& sums,
                       bool require_digest, nb::handle progress, nb::handle check) {
  const std::filesystem::path link = text_of(path);
  LongCall call(progress);
  std::unique_ptr<RangeSource> from = source_of(source, call.watched());
  FetchOptions options =
      fetch_options(std::move(order), verify, chunk_bytes, sums, require_digest, call.progress());
  std::exception_ptr raised;
  options.accept = accept_by(check, raised);
  const auto fetched = call.run([&] { return fetch_model(std::move(from), link, options); });
  if (raised) std::rethrow_exception(raised);
  const ModelReport report = value_or_raise(fetched);
  nb::list files;
  for (const FetchReport& file : report.files) files.append(fetch_report(file));
  nb::dict fields;
  fields["folder"] = to_bytes(report.folder.native());
  fields["previous"] = to_bytes(report.previous.native());
  fields["version"] = to_str(report.version);
  fields["is_new"] = report.is_new;
  fields["files"] = files;
  return fields;
}

}  // namespace

void bind_remote(nb::module_& module) {
  nb::class_<UrlSource>(module, "UrlSource")
      .def(
          "name", [](const UrlSource& source) { return to_str(source.name()); },
          nb::sig("def name(self) -> str"))
      .def("size", [](UrlSource& source) { return version_at_url(source).size; })
      .def(
          "tag", [](UrlSource& source) { return to_str(version_at_url(source).tag); },
          nb::sig("def tag(self) -> str"))
      .def("read_into", read_from_url,
           nb::sig("def read_into(self, offset: int, buffer: typing.Any, /) -> int"))
      .def(
          "sibling",
          [](const UrlSource& source, const std::string& relative) {
            return value_or_raise(without_gil([&] { return source.sibling(relative); }));
          },
          nb::sig("def sibling(self, relative: str, /) -> UrlSource"))
      .def(
          "counts", [](const UrlSource& source) { return range_counts(source.counts()); },
          nb::sig("def counts(self) -> dict[str, int]"));
  nb::class_<RemoteStaging>(module, "Staging")
      .def("checkpoint", [](const RemoteStaging& self) { return OpenCheckpoint{self.metadata()}; })
      .def("wait", wait_for, nb::sig("def wait(self, name: str, /) -> Tensor"))
      .def("finish", finish_staging, nb::arg("progress").none(),
           nb::sig("def finish(self, progress: typing.Callable[[int, int], typing.Any] | None, /) "
                   "-> StagedFile"))
      .def("cancel", [](const RemoteStaging& self) { self.staging().cancel(); })
      .def("stop", &RemoteStaging::stop, "cancel(), and waits for the reads that have begun.")
      .def(
          "report", [](const RemoteStaging& self) { return fetch_report(self.staging().report()); },
          nb::sig("def report(self) -> dict[str, typing.Any]"));
  module.def("url_source", url_source,
             nb::sig("def url_source(opener: typing.Any, /) -> UrlSource"),
             "opener: of _curl.opener().");
  module.def("remote_metadata", read_metadata,
             nb::sig("def remote_metadata(source: typing.Any, /) -> Checkpoint"));
  module.def("model_files", files_of_model,
             nb::sig("def model_files(source: typing.Any, /) -> list[dict[str, typing.Any]]"));
  module.def("start_staging", begin_staging,
             nb::sig("def start_staging(source: typing.Any, order: list[str], verify: bool, "
                     "chunk_bytes: int, name: bytes, budget_bytes: int, "
                     "sums: dict[str, bytes], require_digest: bool, /) -> Staging"));
  module.def("fetch", fetch_to, nb::arg("source"), nb::arg("path"), nb::arg("is_folder"),
             nb::arg("order"), nb::arg("verify"), nb::arg("chunk_bytes"), nb::arg("replaces"),
             nb::arg("sums"), nb::arg("require_digest"), nb::arg("progress").none(),
             nb::sig("def fetch(source: typing.Any, path: bytes, is_folder: bool, "
                     "order: list[str], verify: bool, chunk_bytes: int, replaces: bool, "
                     "sums: dict[str, bytes], require_digest: bool, progress: "
                     "typing.Callable[[int, int], typing.Any] | None, /) "
                     "-> list[dict[str, typing.Any]]"));
  module.def(
      "fetch_model", fetch_version, nb::arg("source"), nb::arg("link"), nb::arg("order"),
      nb::arg("verify"), nb::arg("chunk_bytes"), nb::arg("sums"), nb::arg("require_digest"),
      nb::arg("progress").none(), nb::arg("check").none(),
      nb::sig("def fetch_model(source: typing.Any, link: bytes, order: list[str], "
              "verify: bool, chunk_bytes: int, sums: dict[str, bytes], require_digest: bool, "
              "progress: typing.Callable[[int, int], typing.Any] | None, "
              "check: typing.Callable[[bytes], typing.Any] | None, /) "
              "-> dict[str, typing.Any]"));
}

}  // namespace weightmap::python
