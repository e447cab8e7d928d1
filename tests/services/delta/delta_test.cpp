#include "weightmap/delta.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/sums.hpp"
#include "runtime/system/file/write_lease.hpp"
#include "runtime/system/unique_fd.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::framed;
using test::read_file;
using test::safetensors;
using test::TemporaryFolder;
using test::Tensors;

using namespace std::string_literals;

std::string sum_of(std::string_view text, TensorSum sum = TensorSum::adler32) {
  delta::RunningSum running(sum);
  running.add(bytes_of(text));
  return running.text();
}

// A frame of zstd with one raw block (RFC 8878, 3.1.1): it has its content as it is. Its size is
// stated in one byte.
std::string frame(const std::string& content) {
  const auto size = static_cast<unsigned>(content.size());
  const unsigned block = 1 | size << 3;  // the last one, raw
  return "\x28\xb5\x2f\xfd\x20"s + static_cast<char>(size) + static_cast<char>(block) +
         static_cast<char>(block >> 8) + '\0' + content;
}

// The same with a window of 1 KiB, and without its size.
std::string silent_frame(const std::string& content) {
  std::string text = frame(content);
  text[4] = text[5] = '\0';
  return text;
}

std::string number(std::uint32_t value) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

std::string combined(std::string bytes, std::string_view with) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bytes[i] ^ with[i]);
  return bytes;
}

// A delta made by hand, whose parts tests exchange.
struct HandMade {
  std::string facts = R"("version": "000001", "base_version": "000000", "delta_encoding": "xor", )"
                      R"("compression_format": "zstd", "checksum_format": "adler32")";
  Tensors frames;  // of "shard"
  Tensors sums;
  std::string weight_map;  // empty: of all frames
  std::string shard_name = "shard.safetensors";

  void write(const fs::path& folder) const {
    fs::create_directories(folder);
    std::string map = weight_map;
    std::string metadata, header, payload;
    for (const auto& [name, sum] : sums)
      metadata += (metadata.empty() ? "\"" : ",\"") + name + "\":\"" + sum + '"';
    header = "{\"__metadata__\":{" + metadata + "}";
    for (const auto& [name, bytes] : frames) {
      if (weight_map.empty())
        map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + shard_name + '"';
      header += ",\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(bytes.size()) +
                R"(],"data_offsets":[)" + std::to_string(payload.size()) + "," +
                std::to_string(payload.size() + bytes.size()) + "]}";
      payload += bytes;
    }
    if (!frames.empty())
      std::ofstream(folder / "shard.safetensors", std::ios::binary)
          << framed(header + "}", payload);
    std::ofstream(folder / "model.safetensors.index.json")
        << "{\"metadata\": {" + facts + "}, \"weight_map\": {" + map + "}}";
  }
};

// The delta that makes `tensor` of "a" into `wanted`.
HandMade change_of(std::string_view tensor, const std::string& wanted) {
  return {.frames = {{"a", frame(combined(wanted, tensor))}}, .sums = {{"a", sum_of(wanted)}}};
}

struct Model : TemporaryFolder {
  fs::path base = path() / "base";
  fs::path changes = path() / "change";
  fs::path made = path() / "made";

  Model() { write_model(base, {{"a", "0123"}, {"b", "4567"}}); }

  static void write_model(const fs::path& folder, const Tensors& tensors) {
    fs::create_directories(folder);
    std::ofstream(folder / "model.safetensors", std::ios::binary) << safetensors(tensors);
    std::ofstream(folder / "config.json") << "{}";
    std::ofstream(folder / "SHA256SUMS") << "";
  }
  Result<ApplyReport> apply(const ApplyOptions& options = {}) const {
    return apply_delta(base, {{changes}}, made, options);
  }
  Result<ApplyReport> apply(const HandMade& hand_made) const {
    fs::remove_all(changes);
    hand_made.write(changes);
    return apply();
  }
  static std::string bytes(const fs::path& folder, std::string_view name) {
    const Checkpoint checkpoint = test::opened(folder);
    const auto tensor = checkpoint.get(name);
    REQUIRE_OK(tensor);
    return std::string(test::text_of(tensor->view.stored_bytes()));
  }
  // It fails like this, names the file, and leaves nothing behind.
  void refuses(const HandMade& hand_made, ErrorCode code, std::string_view words,
               const std::string& file = "shard.safetensors") const {
    const Result<ApplyReport> refused = apply(hand_made);
    CHECK_FAILS_IN(refused, code, words, (changes / file).native());
    CHECK(names() == std::set<std::string>{"base", "change"});
  }
};

}  // namespace

TEST_SUITE("sums of tensors") {
  TEST_CASE("they are those of Python's packages") {
    CHECK(sum_of("", TensorSum::xxh3_128) == "99aa06d3014798d86001c324468d497f");
    CHECK(sum_of("abcd", TensorSum::xxh3_128) == "8d6b60383dfa90c21be79eecd1b1353d");
    CHECK(sum_of("", TensorSum::adler32) == "00000001");
    CHECK(sum_of("abcd", TensorSum::adler32) == "03d8018b");
    if (has_blake3())
      CHECK(sum_of("abcd", TensorSum::blake3) ==
            "8c9c9881805d1a847102d7a42e58b990d088dd88a84f7314d71c838107571f2b");
    else
      CHECK_FAILS(delta::check_available(TensorSum::blake3), ErrorCode::unsupported,
                  "this build has no BLAKE3");
  }

  TEST_CASE("they do not depend on how the bytes come") {
    const std::string text(100'000, 'x');
    for (const TensorSum kind : {TensorSum::xxh3_128, TensorSum::blake3, TensorSum::adler32}) {
      if (!delta::check_available(kind)) continue;
      delta::RunningSum parts(kind);
      for (std::size_t i = 0; i < text.size(); i += 777)
        parts.add(bytes_of(std::string_view(text).substr(i, 777)));
      CHECK(parts.text() == sum_of(text, kind));
    }
  }
}

TEST_SUITE("apply_delta") {
  TEST_CASE("the tensors that change have new bytes, and all else is as it was") {
    const Model model;
    const Result<ApplyReport> report = model.apply(change_of("0123", "0x23"));
    REQUIRE_OK(report);
    CHECK(report->version == "000001");
    CHECK(report->base_version == "000000");
    CHECK(report->tensors == 2);
    CHECK(report->changed_tensors == 1);
    CHECK(report->files == std::vector{model.made / "model.safetensors"});
    CHECK(read_file(model.made / "model.safetensors") ==
          safetensors({{"a", "0x23"}, {"b", "4567"}}));
    CHECK(read_file(model.made / "config.json") == "{}");
    CHECK_FALSE(fs::exists(model.made / "SHA256SUMS"));  // of the old weights
    CHECK(Model::bytes(model.base, "a") == "0123");
    CHECK(read_file(model.made / "weightmap_version.json") ==
          "{\"version\": \"000001\", \"base_version\": \"000000\"}\n");
    CHECK(model.names() == std::set<std::string>{"base", "change", "made"});
  }

  TEST_CASE("overwriting gives bytes by their positions") {
    const Model model;
    HandMade delta;
    delta.facts.replace(delta.facts.find("xor"), 3, "overwrite");
    delta.frames = {{"a", frame(number(2) + number(0) + number(3) + "xy")}};
    delta.sums = {{"a", sum_of("x12y")}};
    REQUIRE_OK(model.apply(delta));
    CHECK(Model::bytes(model.made, "a") == "x12y");
  }

  TEST_CASE("sums may be named as ModelExpress names them") {
    const Model model;
    HandMade delta = change_of("0123", "0x23");
    delta.sums = {{"mx.adler32:a", sum_of("0x23")}};
    REQUIRE_OK(model.apply(delta));
  }

  TEST_CASE("a frame need not say how much it holds") {
    const Model model;
    HandMade delta = change_of("0123", "0x23");
    delta.frames = {{"a", silent_frame(combined("0x23", "0123"))}};
    REQUIRE_OK(model.apply(delta));
    CHECK(Model::bytes(model.made, "a") == "0x23");
  }

  TEST_CASE("a delta without changes makes a version with the same bytes") {
    const Model model;
    HandMade delta;
    delta.write(model.changes);
    REQUIRE_OK(model.apply());
    CHECK(read_file(model.made / "model.safetensors") ==
          read_file(model.base / "model.safetensors"));
  }

  TEST_CASE("a chain makes the last version, and each version of it is proven") {
    const Model model;
    HandMade first = change_of("0123", "0x23"), second = change_of("0x23", "yx23");
    second.facts = R"("version": "000002", "base_version": "1", "delta_encoding": "xor", )"
                   R"("compression_format": "zstd", "checksum_format": "adler32")";
    first.write(model.path() / "1");
    second.write(model.path() / "2");
    const fs::path chain[] = {model.path() / "1", model.path() / "2"};
    REQUIRE_OK(apply_delta(model.base, chain, model.made));
    CHECK(Model::bytes(model.made, "a") == "yx23");
    CHECK_FALSE(fs::exists(model.path() / "made-1"));

    first.sums = {{"a", sum_of("other")}};
    first.write(model.path() / "1");
    const auto refused = apply_delta(model.base, chain, model.path() / "again");
    CHECK_FAILS_IN(refused, ErrorCode::corrupt, "the tensor \"a\": would have the sum",
                   (model.path() / "1" / "shard.safetensors").native());

    const fs::path reversed[] = {chain[1], chain[0]};
    CHECK_FAILS(apply_delta(model.base, reversed, model.path() / "again"),
                ErrorCode::invalid_argument,
                "is for version \"1\", and the base is version \"000000\"");
  }

  TEST_CASE("the version of a base is proven by its record, by its name, or given") {
    const Model model;
    HandMade delta = change_of("0123", "0x23");
    delta.facts.replace(delta.facts.find("000000"), 6, "000005")
        .replace(delta.facts.find("000001"), 6, "000006");
    const Result<ApplyReport> other = model.apply(delta);
    CHECK_FAILS(other, ErrorCode::invalid_argument,
                "is for version \"000005\", and the base is version \"000000\"");
    CHECK(other.error().file == (model.changes / "model.safetensors.index.json").native());
    REQUIRE_OK(model.apply({.base_version = "5"}));
    CHECK_FAILS(apply_delta(model.made, {{model.changes}}, model.path() / "2"),
                ErrorCode::invalid_argument, "the base is version \"000006\"");
    fs::rename(model.base, model.path() / "weight_v000005");
    REQUIRE_OK(apply_delta(model.path() / "weight_v000005", {{model.changes}}, model.path() / "2"));
    std::ofstream(model.made / "weightmap_version.json") << "{}";
    CHECK_FAILS_IN(apply_delta(model.made, {{model.changes}}, model.path() / "3"),
                   ErrorCode::corrupt, "does not say which version the model has",
                   (model.made / "weightmap_version.json").native());
  }

  TEST_CASE("what is at the target stays") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    fs::create_directory(model.made);
    CHECK_FAILS_IN(model.apply(), ErrorCode::invalid_argument, "is there already",
                   model.made.native());
    CHECK(fs::is_empty(model.made));
  }

  TEST_CASE("a folder that a killed process has left is begun again") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    fs::create_directories(model.path() / ".made.weightmap-new" / "deep");
    std::ofstream(model.path() / ".made.weightmap-new" / "model.safetensors") << "half";
    REQUIRE_OK(model.apply());
    CHECK(model.names() == std::set<std::string>{"base", "change", "made"});
    CHECK_FALSE(fs::exists(model.made / "deep"));
  }

  TEST_CASE("with once what is there is the answer, and all who ask at once get one version") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    std::vector<std::thread> asking;
    std::atomic<int> made{0}, good{0};
    for (int i = 0; i < 4; ++i)
      asking.emplace_back([&] {
        const Result<ApplyReport> report = model.apply({.once = true});
        good += report ? 1 : 0;
        made += report && report->made ? 1 : 0;
      });
    for (std::thread& each : asking) each.join();
    CHECK(good == 4);
    CHECK(made == 1);
    CHECK(Model::bytes(model.made, "a") == "0x23");
    CHECK(model.names() == std::set<std::string>{"base", "change", "made"});

    std::ofstream(model.made / "weightmap_version.json") << R"({"version": "7"})";
    CHECK_FAILS_IN(model.apply({.once = true}), ErrorCode::invalid_argument,
                   "is there already, with version \"7\" and not \"000001\"", model.made.native());
  }

  TEST_CASE("with once a folder whose weights were removed or cut is no answer") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    REQUIRE_OK(model.apply());
    const fs::path weights = model.made / "model.safetensors";
    fs::resize_file(weights, fs::file_size(weights) - 1);
    CHECK_FAILS_IN(model.apply({.once = true}), ErrorCode::corrupt,
                   "is not as version \"000001\" has it", weights.native());
    fs::remove(weights);
    CHECK_FAILS_IN(model.apply({.once = true}), ErrorCode::corrupt, "remove that",
                   weights.native());
  }

  TEST_CASE("permissions of the weights are kept") {
    const Model model;
    fs::permissions(model.base / "model.safetensors", fs::perms::owner_read);
    REQUIRE_OK(model.apply(change_of("0123", "0x23")));
    CHECK(fs::status(model.made / "model.safetensors").permissions() == fs::perms::owner_read);
  }

  TEST_CASE("a call that is stopped leaves nothing") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    CHECK_FAILS(model.apply({.progress = test::stop}), ErrorCode::cancelled, "was cancelled");
    CHECK(model.names() == std::set<std::string>{"base", "change"});
  }

  TEST_CASE("a base that is written to meanwhile is told") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    const auto grow = test::meanwhile(
        [&] { std::ofstream(model.base / "model.safetensors", std::ios::app) << "more"; });
    CHECK_FAILS(model.apply({.progress = grow}), ErrorCode::io, "");
    CHECK(model.names() == std::set<std::string>{"base", "change"});
  }

  // Calls `meanwhile` once, when the first bytes were written.
  ApplyOptions doing(const std::function<void()>& meanwhile) {
    return {.progress = [meanwhile, is_done = false](std::uint64_t, std::uint64_t) mutable {
      if (!std::exchange(is_done, true)) meanwhile();
      return true;
    }};
  }

  TEST_CASE("a base is that of one folder, wherever its link leads meanwhile") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    Model::write_model(model.path() / "other", {{"a", "abcd"}, {"b", "efgh"}});
    std::ofstream(model.path() / "other" / "config.json") << "other";
    const fs::path link = model.path() / "link";
    fs::create_symlink("base", link);
    const auto options = doing([&] {
      fs::remove(link);
      fs::create_symlink("other", link);
    });
    REQUIRE_OK(apply_delta(link, {{model.changes}}, model.made, options));
    CHECK(Model::bytes(model.made, "b") == "4567");
    CHECK(read_file(model.made / "config.json") == "{}");
  }

  TEST_CASE("what is changed meanwhile beside the weights, or instead of them, is told") {
    const auto refuses = [](const std::string& file, std::string_view words,
                            const auto& meanwhile) {
      const Model model;
      change_of("0123", "0x23").write(model.changes);
      const fs::path named = file.empty() ? model.base : model.base / file;
      const auto failed = model.apply(doing([&] { meanwhile(model); }));
      CHECK_FAILS_IN(failed, ErrorCode::io, words, named.native());
      CHECK_FALSE(fs::exists(model.made));
    };
    refuses("config.json", "cannot copy it",
            [](const Model& model) { fs::remove(model.base / "config.json"); });
    refuses("config.json", "was changed, added or removed meanwhile",
            [](const Model& model) { std::ofstream(model.base / "config.json") << "{ }"; });
    refuses("tokenizer.json", "was changed, added or removed meanwhile",
            [](const Model& model) { std::ofstream(model.base / "tokenizer.json") << "{}"; });
    refuses("", "was replaced by another folder meanwhile", [](const Model& model) {
      fs::rename(model.base, model.path() / "moved");
      Model::write_model(model.base, {{"a", "0123"}, {"b", "4567"}});
    });
  }

  TEST_CASE("an index of a delta that is written to meanwhile is told") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    const fs::path index = model.changes / "model.safetensors.index.json";
    const auto failed = model.apply(doing([&] { std::ofstream(index) << "{}"; }));
    CHECK_FAILS_IN(failed, ErrorCode::io, "was", index.native());
  }

  TEST_CASE("the new folder is readable by whom the old one was") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    for (const unsigned mode : {0700u, 0755u, 0550u}) {
      fs::permissions(model.base, fs::perms{mode});
      REQUIRE_OK(model.apply());
      CHECK(fs::status(model.made).permissions() == fs::perms{mode});
      fs::permissions(model.made, fs::perms::owner_all);
      fs::remove_all(model.made);
    }
    fs::permissions(model.base, fs::perms::owner_all);
  }

  TEST_CASE("another base is told by the sums") {
    const Model model;
    Model::write_model(model.base, {{"a", "0124"}, {"b", "4567"}});
    model.refuses(change_of("0123", "0x23"), ErrorCode::corrupt,
                  "the tensor \"a\": would have the sum");
  }

  TEST_CASE("a base of another format, or that is a file, is refused") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    CHECK_FAILS(apply_delta(model.base / "model.safetensors", {{model.changes}}, model.made),
                ErrorCode::invalid_argument, "is a file: give the folder of the model");
    fs::remove(model.base / "model.safetensors");
    std::ofstream(model.base / "pytorch_model.bin", std::ios::binary)
        << test::torch_zip({{"a", "0123"}});
    CHECK_FAILS(model.apply(), ErrorCode::unsupported, "deltas are for safetensors");
    CHECK_FAILS(apply_delta(model.base, {}, model.made), ErrorCode::invalid_argument,
                "there is no delta to apply");
  }
}

TEST_SUITE("apply_delta_in_place") {
  // Some file systems have no leases; there it is refused.
  bool has_leases(const Model& model) {
    const os::UniqueFd file(::open((model.base / "model.safetensors").c_str(), O_RDWR | O_CLOEXEC));
    if (os::WriteLease::take(file.get())) return true;
    MESSAGE("SKIPPED: changes in place, as this file system has no leases");
    change_of("0123", "0x23").write(model.changes);
    CHECK_FAILS(apply_delta_in_place(model.base, {{model.changes}}), ErrorCode::unsupported,
                "has no leases");
    return false;
  }

  Result<ApplyReport> change(const Model& model) {
    return apply_delta_in_place(model.base, {{model.changes}});
  }

  TEST_CASE("the files of the model have the new bytes") {
    const Model model;
    if (!has_leases(model)) return;
    change_of("0123", "0x23").write(model.changes);
    const Result<ApplyReport> report = change(model);
    REQUIRE_OK(report);
    CHECK(report->version == "000001");
    CHECK(report->files == std::vector{model.base / "model.safetensors"});
    CHECK(read_file(model.base / "model.safetensors") ==
          safetensors({{"a", "0x23"}, {"b", "4567"}}));
    CHECK(model.names() == std::set<std::string>{"base", "change"});
    CHECK_FAILS(change(model), ErrorCode::invalid_argument, "the base is version \"000001\"");
  }

  TEST_CASE("nothing is written before all is proven") {
    const Model model;
    if (!has_leases(model)) return;
    HandMade delta = change_of("0123", "0x23");
    delta.frames.emplace_back("b", frame("abcd"));
    delta.sums.emplace_back("b", sum_of("other"));
    delta.write(model.changes);
    CHECK_FAILS(change(model), ErrorCode::corrupt, "the tensor \"b\": would have the sum");
    CHECK(read_file(model.base / "model.safetensors") ==
          safetensors({{"a", "0123"}, {"b", "4567"}}));
    CHECK(model.names() == std::set<std::string>{"base", "change"});
  }

  TEST_CASE("a file that is mapped, a link, or has other names is refused") {
    const Model model;
    if (!has_leases(model)) return;
    change_of("0123", "0x23").write(model.changes);
    const fs::path file = model.base / "model.safetensors";
    {
      const Checkpoint mapped = test::opened(model.base);
      CHECK_FAILS_IN(change(model), ErrorCode::io, "is open or mapped elsewhere", file.native());
    }
    fs::create_hard_link(file, model.path() / "other");
    CHECK_FAILS_IN(change(model), ErrorCode::unsupported, "has other names", file.native());
    fs::remove(file);
    fs::create_symlink("../other", file);
    CHECK_FAILS_IN(change(model), ErrorCode::unsupported, "is, or lies in, a symbolic link",
                   file.native());
    CHECK(read_file(file) == safetensors({{"a", "0123"}, {"b", "4567"}}));
  }

  TEST_CASE("a change that was stopped anywhere is gone on with, by the same deltas only") {
    const Model model;
    if (!has_leases(model)) return;
    std::string old(500'000, 'o'), now = old;
    for (std::size_t i = 0; i < now.size(); i += 100) now[i] = 'n';
    Model::write_model(model.base, {{"a", old}, {"b", old}});
    Model::write_model(model.path() / "next", {{"a", now}, {"b", now}});
    REQUIRE_OK(write_delta(model.base, model.path() / "next", model.changes));
    const std::string expected = read_file(model.path() / "next" / "model.safetensors");
    int calls = 0, stop_at = 0, resumed = 0;
    const ApplyOptions stopping{
        .progress = [&](std::uint64_t, std::uint64_t) { return calls++ != stop_at; }};
    for (;; ++stop_at) {
      calls = 0;
      const auto stopped = apply_delta_in_place(model.base, {{model.changes}}, stopping);
      if (stopped) break;
      REQUIRE(stopped.error().code == ErrorCode::cancelled);
      if (fs::exists(model.base)) continue;  // it was proving
      ++resumed;
      CHECK(stopped.error().message.find("until this is run again") != std::string::npos);
      HandMade other = change_of("0123", "0x23");
      other.write(model.path() / "other");
      CHECK_FAILS(apply_delta_in_place(model.base, {{model.path() / "other"}}), ErrorCode::corrupt,
                  "");
      REQUIRE_OK(apply_delta_in_place(model.base, {{model.changes}}));
      CHECK(read_file(model.base / "model.safetensors") == expected);
      fs::remove_all(model.base);
      Model::write_model(model.base, {{"a", old}, {"b", old}});
    }
    CHECK(resumed >= 4);
    CHECK(read_file(model.base / "model.safetensors") == expected);
  }

  TEST_CASE("what was changed meanwhile by others is told, when a change is gone on with") {
    const Model model;
    if (!has_leases(model)) return;
    const std::string old(500'000, 'o');
    Model::write_model(model.base, {{"a", old}, {"b", old}});
    Model::write_model(model.path() / "next",
                       {{"a", std::string(old.size(), 'n')}, {"b", std::string(old.size(), 'n')}});
    REQUIRE_OK(write_delta(model.base, model.path() / "next", model.changes));
    const ApplyOptions stopping{.progress = [&](std::uint64_t done, std::uint64_t all) {
      return done < all * 3 / 4;  // in the second pass
    }};
    CHECK_FAILS(apply_delta_in_place(model.base, {{model.changes}}, stopping), ErrorCode::cancelled,
                "");
    const fs::path file = model.path() / ".base.weightmap-in-place" / "model.safetensors";
    std::fstream(file, std::ios::binary | std::ios::in | std::ios::out).seekp(1000) << "x";
    CHECK_FAILS(change(model), ErrorCode::corrupt, "the tensor \"a\": would have the sum");
    CHECK_FALSE(fs::exists(model.base));
  }

  TEST_CASE("a delta that was damaged since a change began is told, and the whole one ends it") {
    const Model model;
    if (!has_leases(model)) return;
    const std::string old(500'000, 'o'), now(500'000, 'n');
    Model::write_model(model.base, {{"a", old}, {"b", old}});
    Model::write_model(model.path() / "next", {{"a", now}, {"b", now}});
    REQUIRE_OK(write_delta(model.base, model.path() / "next", model.changes));
    const ApplyOptions stopping{.progress = [&](std::uint64_t done, std::uint64_t all) {
      return done < all * 5 / 8;  // in the second pass, and in the first tensor
    }};
    CHECK_FAILS(apply_delta_in_place(model.base, {{model.changes}}, stopping), ErrorCode::cancelled,
                "");
    const fs::path shard = model.changes / "model-00001-of-00001.safetensors";
    const std::string whole = read_file(shard);
    std::string damaged = whole;
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    test::replace(shard, damaged);
    CHECK_FAILS(change(model), ErrorCode::corrupt, "the tensor \"");
    test::replace(shard, whole);
    REQUIRE_OK(change(model));
    CHECK(read_file(model.base / "model.safetensors") ==
          read_file(model.path() / "next" / "model.safetensors"));
  }

  // A change in place that was stopped behind its last window.
  struct Stopped : Model {
    fs::path hidden = path() / ".base.weightmap-in-place";
    fs::path journal = hidden / ".weightmap-in-place";

    bool begin() const {
      if (!has_leases(*this)) return false;
      change_of("0123", "0x23").write(changes);
      const ApplyOptions stopping{
          .progress = [&](std::uint64_t done, std::uint64_t all) { return done < all; }};
      CHECK_FAILS(apply_delta_in_place(base, {{changes}}, stopping), ErrorCode::cancelled, "");
      return true;
    }
  };

  TEST_CASE("a journal with any other byte is told before anything is written, or does no harm") {
    const Stopped model;
    if (!model.begin()) return;
    const std::string whole = read_file(model.journal);
    const fs::path saved = model.path() / "saved";
    fs::copy(model.hidden, saved, fs::copy_options::recursive);
    const std::string before = read_file(saved / "model.safetensors");
    int refused = 0;
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int bit : {1, 128}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ bit);
        test::replace(model.journal, damaged);
        if (change(model)) {
          CHECK(Model::bytes(model.base, "a") == "0x23");
          fs::remove_all(model.base);
          fs::copy(saved, model.hidden, fs::copy_options::recursive);
        } else {
          CHECK(read_file(model.hidden / "model.safetensors") == before);
          ++refused;
        }
      }
    CHECK(refused >= 2 * 96);  // all bytes that say what it is, and of what
    for (const std::size_t size : {std::size_t{0}, std::size_t{159}}) {
      test::replace(model.journal, whole.substr(0, size));
      CHECK_FALSE(change(model));
    }
    test::replace(model.journal, whole.substr(0, 96) + std::string(64, 'x') + whole.substr(160));
    CHECK_FAILS_IN(change(model), ErrorCode::corrupt, "is a damaged journal of a change",
                   model.journal.native());
    test::replace(model.journal, whole);
    REQUIRE_OK(change(model));
    CHECK(Model::bytes(model.base, "a") == "0x23");
  }

  TEST_CASE("a journal that is whole, and of no place in the model, is told") {
    const Stopped model;
    if (!model.begin()) return;
    const std::string whole = read_file(model.journal);
    struct State {
      std::uint64_t tensor, offset, begun, sum;
    };
    for (State state : {State{2, 0, 0, 0}, State{0, 5, 0, 0}, State{0, 2, 3, 0}, State{1, 1, 0, 0},
                        State{1, 0, 1, 0}}) {
      const std::string old_bytes(state.begun, 'o');
      state.sum = XXH3_64bits_withSeed(old_bytes.data(), old_bytes.size(),
                                       XXH3_64bits(&state, sizeof state - 8));
      const std::string text(reinterpret_cast<const char*>(&state), sizeof state);
      const std::string none(sizeof state, 'x');
      test::replace(model.journal, whole.substr(0, 96) + (state.begun == 0 ? none : text) +
                                       (state.begun == 0 ? text : none) + old_bytes);
      CHECK_FAILS(change(model), ErrorCode::corrupt, "the journal of the change is damaged");
    }
    test::replace(model.journal, whole);
    REQUIRE_OK(change(model));
  }

  TEST_CASE("what a link leads to is not written to") {
    const Stopped model;
    if (!model.begin()) return;
    const fs::path elsewhere = model.path() / "elsewhere";
    fs::rename(model.journal, elsewhere);
    fs::create_symlink(elsewhere, model.journal);
    const std::string journal = read_file(elsewhere);
    CHECK_FAILS_IN(change(model), ErrorCode::corrupt, "is a symbolic link", model.journal.native());
    CHECK(read_file(elsewhere) == journal);
    fs::remove(model.journal);
    fs::rename(elsewhere, model.journal);
    REQUIRE_OK(change(model));

    const Model other;
    change_of("0123", "0x23").write(other.changes);
    std::ofstream(other.path() / "record") << R"({"version": "000000"})";
    fs::create_symlink("../record", other.base / "weightmap_version.json");
    CHECK_FAILS_IN(change(other), ErrorCode::unsupported, "is a symbolic link",
                   (other.base / "weightmap_version.json").native());
    CHECK(read_file(other.path() / "record") == R"({"version": "000000"})");
    CHECK(Model::bytes(other.base, "a") == "0123");
  }

  TEST_CASE("a change that was not ended is no base, and no version to compare") {
    const Stopped model;
    if (!model.begin()) return;
    CHECK_FAILS_IN(apply_delta(model.hidden, {{model.changes}}, model.made),
                   ErrorCode::invalid_argument, "has bytes of two versions", model.hidden.native());
    Model::write_model(model.path() / "next", {{"a", "0123"}, {"b", "4567"}});
    for (const auto& [from, to] : {std::pair(model.hidden, model.path() / "next"),
                                   std::pair(model.path() / "next", model.hidden)})
      CHECK_FAILS_IN(write_delta(from, to, model.made), ErrorCode::invalid_argument,
                     "has bytes of two versions", model.hidden.native());
  }

  TEST_CASE("without a journal a folder has the version that it says") {
    const Model model;
    if (!has_leases(model)) return;
    HandMade later = change_of("0123", "0x23");
    later.facts = R"("version": "000002", "base_version": "000001", "delta_encoding": "xor", )"
                  R"("compression_format": "zstd", "checksum_format": "adler32")";
    later.write(model.changes);
    fs::rename(model.base, model.path() / ".base.weightmap-in-place");
    CHECK_FAILS(change(model), ErrorCode::invalid_argument, "the base is version \"000000\"");
  }

  TEST_CASE("names are what the system finds by them") {
    const Model model;
    if (!has_leases(model)) return;
    change_of("0123", "0x23").write(model.changes);
    fs::create_directories(model.path() / "a" / "deep");
    fs::copy(model.base, model.path() / "a" / "model");
    fs::create_symlink("a/deep", model.path() / "link");
    REQUIRE_OK(apply_delta_in_place(model.path() / "link" / ".." / "model", {{model.changes}}));
    CHECK(Model::bytes(model.path() / "a" / "model", "a") == "0x23");
    REQUIRE_OK(apply_delta(model.base, {{model.changes}}, model.path() / "link" / ".." / "made"));
    CHECK(Model::bytes(model.path() / "a" / "made", "a") == "0x23");
  }

  TEST_CASE("what stands beside a change that was not ended is told") {
    const Model model;
    if (!has_leases(model)) return;
    change_of("0123", "0x23").write(model.changes);
    fs::copy(model.base, model.path() / ".base.weightmap-in-place");
    CHECK_FAILS(change(model), ErrorCode::invalid_argument, "remove one of them");
    fs::remove_all(model.base);
    std::ofstream(model.path() / ".base.weightmap-in-place" / ".weightmap-in-place")
        << "no journal";
    CHECK_FAILS(change(model), ErrorCode::corrupt, "is no journal of a change");
    fs::remove(model.path() / ".base.weightmap-in-place" / ".weightmap-in-place");
    REQUIRE_OK(change(model));
    CHECK(Model::bytes(model.base, "a") == "0x23");
  }
}

TEST_SUITE("a damaged delta") {
  TEST_CASE("a frame that ends early") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames = {{"a", frame("ab")}};
    Model().refuses(delta, ErrorCode::corrupt, "the frame states 2 bytes");
    delta.frames = {{"a", silent_frame("ab")}};
    Model().refuses(delta, ErrorCode::corrupt, "the frame ends 2 bytes or more before");
  }
  TEST_CASE("a frame that grows beyond its tensor") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames = {{"a", frame("abcde")}};
    Model().refuses(delta, ErrorCode::corrupt, "the frame states 5 bytes");
    delta.frames = {{"a", silent_frame("abcde")}};
    Model().refuses(delta, ErrorCode::corrupt, "the frame has more bytes than what it changes");
  }
  TEST_CASE("a frame that is cut") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames[0].second.pop_back();
    Model().refuses(delta, ErrorCode::corrupt, "the frame ends early");
  }
  TEST_CASE("a frame with something behind it") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames[0].second += frame("");
    Model().refuses(delta, ErrorCode::corrupt, "the frame ends, and bytes follow it");
  }
  TEST_CASE("a frame with a block of no kind") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames[0].second[6] = static_cast<char>(delta.frames[0].second[6] | 6);
    Model().refuses(delta, ErrorCode::corrupt, "the frame is damaged");
  }
  TEST_CASE("what is no frame, a frame to be skipped, and nothing") {
    HandMade delta = change_of("0123", "0x23");
    for (const std::string& text : {"0123456"s, "\x50\x2a\x4d\x18\x01\0\0\0x"s, ""s}) {
      delta.frames = {{"a", text}};
      Model().refuses(delta, ErrorCode::corrupt, "the frame does not begin as one of zstd does");
    }
  }
  TEST_CASE("a frame that needs more memory than any needs here") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames[0].second = silent_frame(combined("0x23", "0123"));
    delta.frames[0].second[5] = static_cast<char>(0x90);  // a window of 256 MiB
    Model().refuses(delta, ErrorCode::corrupt, "the frame is damaged");
  }

  TEST_CASE("frames of a chain that need too much memory at once") {
    const Model model;
    std::vector<fs::path> chain;
    for (int step = 0; step < 4; ++step) {
      HandMade delta = change_of("0123", step % 2 == 0 ? "0x23" : "0123");
      delta.frames[0].second = silent_frame(combined("0x23", "0123"));
      delta.frames[0].second[5] = static_cast<char>(0x88);  // a window of 128 MiB
      delta.facts = R"("version": ")" + std::to_string(step + 1) + R"(", "base_version": ")" +
                    std::to_string(step) + R"(", "delta_encoding": "xor", )" +
                    R"("compression_format": "zstd", "checksum_format": "adler32")";
      chain.push_back(model.path() / std::to_string(step));
      delta.write(chain.back());
    }
    CHECK_FAILS_IN(apply_delta(model.base, chain, model.made), ErrorCode::limit_exceeded,
                   "the tensor \"a\": its frames need 538181632 bytes of memory at once",
                   (chain.back() / "shard.safetensors").native());
    chain.pop_back();
    REQUIRE_OK(apply_delta(model.base, chain, model.made));
    CHECK(Model::bytes(model.made, "a") == "0x23");
  }

  HandMade overwriting(const std::string& content, bool says_size = true) {
    HandMade delta;
    delta.facts.replace(delta.facts.find("xor"), 3, "overwrite");
    delta.frames = {{"a", says_size ? frame(content) : silent_frame(content)}};
    delta.sums = {{"a", sum_of("x12y")}};
    return delta;
  }
  TEST_CASE("positions that do not ascend") {
    const std::string positions = number(2) + number(3) + number(0) + "xy";
    Model().refuses(overwriting(positions), ErrorCode::corrupt,
                    "the frame changes byte 0 after byte 3; positions have to ascend");
    Model().refuses(overwriting(number(2) + number(0) + number(0) + "xy"), ErrorCode::corrupt,
                    "changes byte 0 after byte 0");
  }
  TEST_CASE("a position behind the tensor") {
    Model().refuses(overwriting(number(1) + number(4) + "x"), ErrorCode::corrupt,
                    "the frame changes byte 4 of a tensor that has 4");
  }
  TEST_CASE("more positions than the tensor has bytes, or than the frame has") {
    Model().refuses(overwriting(number(5) + number(0) + number(1) + number(2) + number(3) +
                                number(4) + "abcde"),
                    ErrorCode::corrupt, "the frame states 29 bytes");
    Model().refuses(overwriting(number(5), false), ErrorCode::corrupt,
                    "the frame changes 5 bytes of a tensor that has 4");
    Model().refuses(overwriting(number(3) + number(0) + "x"), ErrorCode::corrupt, "the frame ends");
    Model().refuses(overwriting("123"), ErrorCode::corrupt, "the frame states 3 bytes");
    Model().refuses(overwriting(number(1) + number(0) + "xy", false), ErrorCode::corrupt,
                    "the frame has more bytes than what it changes");
  }

  TEST_CASE("facts that are missing or unknown") {
    const auto with = [](std::string_view text, const std::string& other) {
      HandMade delta = change_of("0123", "0x23");
      delta.facts.replace(delta.facts.find(text), text.size(), other);
      return delta;
    };
    const char* const index = "model.safetensors.index.json";
    Model().refuses(with("\"delta_encoding\": \"xor\"", "\"other\": \"\""),
                    ErrorCode::not_a_checkpoint, "its metadata has no delta_encoding", index);
    Model().refuses(with("\"xor\"", "1"), ErrorCode::not_a_checkpoint, "has no delta_encoding",
                    index);
    Model().refuses(with("xor", "add"), ErrorCode::unsupported, "has \"add\" as its delta_encoding",
                    index);
    Model().refuses(with("zstd", "lz4"), ErrorCode::unsupported,
                    "has \"lz4\" as its compression_format", index);
    Model().refuses(with("adler32", "md5"), ErrorCode::unsupported,
                    "has \"md5\" as its checksum_format", index);
    Model().refuses(with("\"version\"", "\"versions\""), ErrorCode::corrupt,
                    "has no text \"version\" in its metadata", index);
    Model().refuses(with("000001", "000000"), ErrorCode::corrupt,
                    "leads from version \"000000\" to \"000000\", which is not a later one", index);
    Model().refuses(with("000000", "000007"), ErrorCode::corrupt, "which is not a later one",
                    index);
    Model().refuses(with("000001", ""), ErrorCode::corrupt, "\"\" is no version", index);
  }

  TEST_CASE("names that lead elsewhere, files and tensors that are not there") {
    HandMade delta = change_of("0123", "0x23");
    const char* const index = "model.safetensors.index.json";
    delta.weight_map = R"("a": "../base/model.safetensors")";
    Model().refuses(delta, ErrorCode::corrupt, "does not lie beside it", index);
    delta.weight_map = R"("a": "/etc/passwd")";
    Model().refuses(delta, ErrorCode::corrupt, "does not lie beside it", index);
    delta.weight_map = R"("a": "other.safetensors")";
    Model().refuses(delta, ErrorCode::io, "", "other.safetensors");
    delta.weight_map = R"("a": "shard.safetensors", "b": "shard.safetensors")";
    Model().refuses(delta, ErrorCode::corrupt, "has no tensor \"b\", which the index has in it");
    delta.weight_map = R"("a": "shard.safetensors", "a": "shard.safetensors")";
    Model().refuses(delta, ErrorCode::corrupt, "names the tensor \"a\" twice", index);
    delta.weight_map = R"("b": "shard.safetensors")";
    Model().refuses(delta, ErrorCode::corrupt, "has a tensor \"a\", which the index has not in it");
  }

  TEST_CASE("a shard that the index does not name") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    std::ofstream(model.changes / "other.safetensors") << "";
    CHECK_FAILS(model.apply(), ErrorCode::corrupt, "does not name \"other.safetensors\"");
  }

  TEST_CASE("a tensor that the base has not") {
    HandMade delta = change_of("0123", "0x23");
    delta.frames = {{"c", frame("abcd")}};
    delta.sums = {{"c", sum_of("abcd")}};
    Model().refuses(delta, ErrorCode::corrupt, "changes a tensor that the base has not");
  }

  TEST_CASE("sums that are missing or of another kind") {
    HandMade delta = change_of("0123", "0x23");
    delta.sums = {};
    Model().refuses(delta, ErrorCode::corrupt, "has no sum of the tensor \"a\"");
    for (const std::string sum : {"", "0000000", "0000000G", "99aa06d3014798d86001c324468d497f"}) {
      delta.sums = {{"a", sum}};
      Model().refuses(delta, ErrorCode::corrupt,
                      "as the sum of the tensor \"a\", which is none of adler32");
    }
  }

  TEST_CASE("a shard whose tensors are no bytes") {
    const Model model;
    change_of("0123", "0x23").write(model.changes);
    std::ofstream(model.changes / "shard.safetensors", std::ios::binary)
        << framed(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd");
    CHECK_FAILS(model.apply(), ErrorCode::corrupt, "the tensor \"a\" is no row of bytes");
  }

  TEST_CASE("what is no folder of a delta") {
    const Model model;
    CHECK_FAILS(model.apply(), ErrorCode::io, "");
    fs::create_directory(model.changes);
    CHECK_FAILS_IN(model.apply(), ErrorCode::not_a_checkpoint, "is no delta: it has no",
                   model.changes.native());
    for (const char* name : {"one.safetensors.index.json", "two.safetensors.index.json"})
      std::ofstream(model.changes / name) << "{}";
    CHECK_FAILS(model.apply(), ErrorCode::not_a_checkpoint, "has several indexes");
    CHECK_FAILS(
        apply_delta(model.base, {{model.changes / "one.safetensors.index.json"}}, model.made),
        ErrorCode::not_a_checkpoint, "is JSON without a weight_map");
    CHECK_FAILS(apply_delta(model.base, {{model.base}}, model.made), ErrorCode::not_a_checkpoint,
                "is no delta");
  }
}

TEST_SUITE("write_delta") {
  struct Versions : Model {
    fs::path next = path() / "next";
    Versions() { write_model(next, {{"a", "0x23"}, {"b", "4567"}}); }
  };

  TEST_CASE("what it writes makes the new version of the old one, by each encoding and sum") {
    for (const DeltaEncoding encoding : {DeltaEncoding::xor_bytes, DeltaEncoding::overwrite})
      for (const TensorSum sum : {TensorSum::xxh3_128, TensorSum::blake3, TensorSum::adler32}) {
        if (!delta::check_available(sum)) continue;
        const Versions versions;
        const auto written = write_delta(versions.base, versions.next, versions.changes,
                                         {.encoding = encoding, .sum = sum});
        REQUIRE_OK(written);
        CHECK(written->version == "000001");
        CHECK(written->base_version == "000000");
        CHECK(written->tensors == 2);
        CHECK(written->changed_tensors == 1);
        CHECK(written->changed_bytes == 1);
        CHECK(written->tensor_bytes == 8);
        CHECK(written->files.front().filename() == "model-00001-of-00001.safetensors");
        CHECK(written->files.back().filename() == "model.safetensors.index.json");
        REQUIRE_OK(versions.apply());
        CHECK(read_file(versions.made / "model.safetensors") ==
              read_file(versions.next / "model.safetensors"));
        // A chain goes on from there by itself.
        const auto after =
            write_delta(versions.made, versions.base, versions.path() / "weight_v000009");
        REQUIRE_OK(after);
        CHECK(after->base_version == "000001");
        CHECK(after->version == "000009");
      }
  }

  TEST_CASE("its index has the facts") {
    const Versions versions;
    REQUIRE_OK(write_delta(versions.base, versions.next, versions.changes));
    CHECK(
        read_file(versions.changes / "model.safetensors.index.json") ==
        R"({"metadata": {"version": "000001", "base_version": "000000", "delta_encoding": "xor", )"
        R"("compression_format": "zstd", "checksum_format": "xxh3-128"}, "weight_map": )"
        R"({"a": "model-00001-of-00001.safetensors"}})"
        "\n");
  }

  TEST_CASE("changes are divided among files, by the bytes of their tensors") {
    const Versions versions;
    Model::write_model(versions.next, {{"a", "0x23"}, {"b", "456x"}});
    const auto written =
        write_delta(versions.base, versions.next, versions.changes, {.file_bytes = 4});
    REQUIRE_OK(written);
    CHECK(written->files.size() == 3);
    CHECK(written->files[1].filename() == "model-00002-of-00002.safetensors");
    REQUIRE_OK(versions.apply());
    CHECK(Model::bytes(versions.made, "b") == "456x");
  }

  TEST_CASE("tensors longer than a window, with every kind of difference") {
    const Model model;
    std::string old(700'001, '\0');
    for (std::size_t i = 0; i < old.size(); ++i) old[i] = static_cast<char>(i * 2654435761u >> 13);
    std::string now = old;
    for (std::size_t i = 0; i < now.size(); i += 1 + i % 977)
      now[i] = static_cast<char>(now[i] + 1);
    now.back() = static_cast<char>(now.back() ^ 1);
    // At the ends of windows, which are at multiples of their size in the file.
    const std::size_t begin = safetensors({{"a", old}, {"b", old}, {"c", "x"}}).find(old);
    for (const std::size_t at : {delta::window_bytes - 1, delta::window_bytes})
      now[at - begin] = static_cast<char>(old[at - begin] ^ 2);
    Model::write_model(model.base, {{"a", old}, {"b", old}, {"c", "x"}});
    Model::write_model(model.path() / "next", {{"a", now}, {"b", old}, {"c", "y"}});
    for (const DeltaEncoding encoding : {DeltaEncoding::xor_bytes, DeltaEncoding::overwrite}) {
      fs::remove_all(model.changes);
      fs::remove_all(model.made);
      REQUIRE_OK(write_delta(model.base, model.path() / "next", model.changes,
                             {.encoding = encoding, .threads = 3}));
      REQUIRE_OK(model.apply({.threads = 3}));
      CHECK(read_file(model.made / "model.safetensors") ==
            read_file(model.path() / "next" / "model.safetensors"));
    }
  }

  TEST_CASE("what a tensor is compressed to is kept in no more memory than that") {
    const std::string old = "0123", now = "0x23";
    const auto made =
        delta::encode({}, bytes::MemorySource(bytes_of(old)), bytes::MemorySource(bytes_of(now)));
    REQUIRE_OK(made);
    CHECK(made->frame.capacity() == made->frame.size());
  }

  TEST_CASE("nothing changed: an index alone") {
    const Versions versions;
    const auto written = write_delta(versions.base, versions.base, versions.changes);
    REQUIRE_OK(written);
    CHECK(written->files.size() == 1);
    CHECK(written->changed_tensors == 0);
    REQUIRE_OK(versions.apply());
  }

  TEST_CASE("checkpoints with other tensors are refused") {
    const Versions versions;
    const auto refuses = [&](const Tensors& tensors, std::string_view words) {
      Model::write_model(versions.next, tensors);
      CHECK_FAILS(write_delta(versions.base, versions.next, versions.changes),
                  ErrorCode::invalid_argument, words);
      CHECK(versions.names() == std::set<std::string>{"base", "next"});
    };
    refuses({{"a", "0123"}}, "the tensor \"b\" is in the old version only");
    refuses({{"a", "0123"}, {"b", "4567"}, {"c", ""}},
            "the tensor \"c\" is not in the old version");
    refuses({{"a", "0123"}, {"b", "456"}}, "the tensor \"b\" has another type or shape");
  }

  TEST_CASE("options that cannot be") {
    const Versions versions;
    const auto refuses = [&](const DeltaOptions& options, std::string_view words) {
      CHECK_FAILS(write_delta(versions.base, versions.next, versions.changes, options),
                  ErrorCode::invalid_argument, words);
      CHECK_FALSE(fs::exists(versions.changes));
    };
    refuses({.level = 0}, "the level of zstd is 0");
    refuses({.level = 20}, "the level of zstd is 20");
    refuses({.version = "1", .base_version = "1"}, "which is not a later one");
    refuses({.base_version = "abc"}, "say which version it leads to");
    refuses({.version = ""}, "is no version");
  }

  TEST_CASE("a call that is stopped leaves nothing") {
    const Versions versions;
    CHECK_FAILS(
        write_delta(versions.base, versions.next, versions.changes, {.progress = test::stop}),
        ErrorCode::cancelled, "was cancelled");
    CHECK(versions.names() == std::set<std::string>{"base", "next"});
  }
}

}  // namespace weightmap
