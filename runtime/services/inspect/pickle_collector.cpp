#include "runtime/services/inspect/pickle_collector.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/formats/torch/globals.hpp"
#include "runtime/formats/torch/names.hpp"

namespace weightmap {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t most_pickles = 1000;  // one after another

bool is_identifier(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
}

bool is_name(const NamedGlobal& global) noexcept {
  return is_identifier(global.module) && is_identifier(global.name);
}

// Who reads a pickle with a fault runs all that is in front of it. A name that it computes is made
// of others that it has: an opcode with an extension code alone is a byte of any data, such as the
// first one of msgpack. Without the mark, two lines of words are a name; only a call makes it one.
bool is_believable(const PickleGlobals& pickle, const pickle::Scan& scan, bool has_mark) noexcept {
  const GlobalVerdict least = has_mark ? GlobalVerdict::unknown : GlobalVerdict::harmful;
  return !scan.fault || scan.has_calls ||
         std::ranges::any_of(pickle.globals, [&](const NamedGlobal& global) {
           return is_name(global) && global.verdict >= least;
         });
}

// joblib's arrays lie raw among the opcodes, and the machine alone knows their lengths. Who reads
// the file without joblib runs them as opcodes, so names that scan_globals() finds count, too.
Result<std::unique_ptr<value::Tree>> parse_with_arrays(Bytes bytes, std::uint64_t file_offset,
                                                       const Limits& limits) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::Buffer copy(bytes.size(), memory);
  std::ranges::copy(bytes, copy.data());
  const Bytes pickle = std::as_const(copy).span();
  const pickle::ParseLimits parse_limits{.budget_bytes = limits.base_memory + 5 * bytes.size(),
                                         .depth = limits.depth,
                                         .has_raw_arrays = true};
  return pickle::parse(std::move(copy), pickle, file_offset, parse_limits, memory);
}

}  // namespace

bool begins_as_pickle(Bytes bytes) noexcept {
  return bytes.size() >= 2 && static_cast<std::uint8_t>(bytes[0]) == pickle::op_PROTO &&
         static_cast<std::uint8_t>(bytes[1]) <= 5;
}

bool may_be_pickle(Bytes bytes, std::uint64_t size) {
  bool has_names = false;
  const pickle::Scan scan = pickle::scan_globals(
      bytes, 0, std::uint64_t{1} << 20, [&](const pickle::ScannedGlobal&) { has_names = true; });
  return has_names || !scan.fault || (scan.ends_early && scan.needs <= size);
}

GlobalVerdict PickleCollector::judge(const pickle::ScannedGlobal& global,
                                     bool is_torchscript) const {
  if (global.module.empty() && global.name.empty()) return GlobalVerdict::harmful;
  return torch::judge(global.module, global.name, options_.safe_globals, is_torchscript);
}

pickle::Scan PickleCollector::add_one(const std::string& record, Bytes bytes,
                                      std::uint64_t file_offset, bool is_torchscript) {
  PickleGlobals& made = into_.pickles.emplace_back();
  made.record = record;
  made.file_offset = file_offset;
  const std::uint64_t budget = options_.limits.base_memory + 2 * bytes.size();
  std::uint64_t used = 0;
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> known;
  const auto found = [&](const pickle::ScannedGlobal& global) {
    const auto [at, is_new] = known.try_emplace({global.module, global.name}, made.globals.size());
    if (!is_new) {
      if (at->second < made.globals.size()) ++made.globals[at->second].count;
      return;
    }
    // Two strings, a node of the map, and fields.
    used += sizeof(NamedGlobal) + 128 + global.module.size() + global.name.size();
    if (used > budget) {
      known.erase(at);
      return;
    }
    const torch::GlobalName current = torch::in_python_3(global.module, global.name);
    made.globals.push_back({std::string(current.module), std::string(current.name),
                            file_offset + global.position, 1, judge(global, is_torchscript)});
  };
  pickle::Scan scan = pickle::scan_globals(bytes, file_offset,
                                           options_.limits.base_memory + 8 * bytes.size(), found);
  const bool has_arrays = std::ranges::any_of(known, [](const auto& name) {
    return pickle::is_joblib_array(name.first.first, name.first.second);
  });
  if (has_arrays && array_parses_left_ > 0) {
    --array_parses_left_;
    const auto tree = parse_with_arrays(bytes, file_offset, options_.limits);
    const std::vector<NamedGlobal> by_opcodes = std::move(made.globals);
    made.globals.clear();
    known.clear();
    if (tree) {
      scan = pickle::Scan();
      scan.length = (*tree)->pickle().size();
      for (const value::Global* global : (*tree)->globals())
        found({global->module, global->name, global->position});
    } else if (scan.fault || record.empty()) {
      scan.fault = tree.error();
      scan.ends_early = true;  // as far as anyone can tell
    }
    for (const NamedGlobal& global : by_opcodes)
      if (is_name(global) && std::ranges::none_of(made.globals, [&](const NamedGlobal& other) {
            return other.module == global.module && other.name == global.name;
          }))
        made.globals.push_back(global);
  }
  made.fault = scan.fault;
  if (used > budget && !made.fault)
    made.fault =
        Error{ErrorCode::limit_exceeded,
              "the names in the pickle need more memory than " + std::to_string(budget) + " bytes",
              file_offset,
              {}};
  return scan;
}

PickleCollector::Added PickleCollector::add(const std::string& record, Bytes bytes,
                                            std::uint64_t file_offset, bool is_torchscript) {
  const std::size_t first = into_.pickles.size();
  Added added;
  while (added.length < bytes.size() || added.length == 0) {
    const Bytes rest = bytes.subspan(added.length);
    if (into_.pickles.size() - first == most_pickles) {
      into_.pickles.back().fault =
          Error{ErrorCode::limit_exceeded,
                "more pickles follow than the " + std::to_string(most_pickles) +
                    " that are looked at; take them apart and scan those",
                file_offset + added.length,
                {}};
      added.length = bytes.size();
      return added;
    }
    const pickle::Scan scan = add_one(record, rest, file_offset + added.length, is_torchscript);
    const bool has_mark = begins_as_pickle(rest);
    const bool is_file = record.empty() && added.length == 0;
    const bool is_one = is_believable(into_.pickles.back(), scan, has_mark || is_file);
    if (added.length == 0) added.is_believable = is_one;
    if (scan.ends_early) added.needs = std::max(added.length + scan.needs, bytes.size() + 1);
    if (added.length > 0 && !has_mark && !is_one) {
      into_.pickles.pop_back();
      break;
    }
    if (scan.fault) return added;
    added.length += scan.length;
  }
  into_.pickles[first].bytes_behind = bytes.size() - added.length;
  return added;
}

}  // namespace weightmap
