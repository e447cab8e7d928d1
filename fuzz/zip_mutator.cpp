#include "fuzz/zip_mutator.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/mutation.hpp"
#include "fuzz/pickle_mutator.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "tests/support/archive_builder.hpp"

namespace weightmap::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

struct Member {
  std::string name;
  Bytes payload;  // as stored in the file
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  bool is_deflated = false;
  bool is_plain = false;  // in the form of other tools
};

struct Archive {
  std::vector<Member> members;
  std::uint64_t alignment = 64;
};

constexpr std::string_view local_signature("PK\3\4", 4);
constexpr std::string_view central_signature("PK\1\2", 4);

constexpr auto names = std::to_array<std::string_view>({"data.pkl",
                                                        "constants.pkl",
                                                        "byteorder",
                                                        "version",
                                                        ".data/version",
                                                        ".format_version",
                                                        ".storage_alignment",
                                                        ".data/serialization_id",
                                                        "data/0",
                                                        "data/1",
                                                        "data/2",
                                                        "data/10",
                                                        "constants/0",
                                                        "code/__torch__.py",
                                                        "code/__torch__/Model.py",
                                                        "extra/a.txt",
                                                        "DATA.PKL",
                                                        "",
                                                        "data/",
                                                        ".weightmap/reserved"});
constexpr auto contents = std::to_array<std::string_view>(
    {"", "little", "big", "0", "1", "3\n", "10", "11", "64", "4096", "65536", "99999999999999"});

std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t width) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | static_cast<std::uint8_t>(text[at + i]);
  return value;
}

Bytes payload_of(std::string_view file, std::uint64_t header, std::uint64_t length) {
  if (header > file.size() || file.size() - header < 30) return {};
  const std::string_view record = file.substr(header);
  if (!record.starts_with(local_signature)) return {};
  const std::uint64_t begin = 30 + number_at(record, 26, 2) + number_at(record, 28, 2);
  if (begin > record.size() || length > record.size() - begin) return {};
  return test::to_bytes(record.substr(begin, length));
}

// Returns the member that the central entry at the front of `entry` describes.
std::optional<Member> member_of(std::string_view file, std::string_view entry) {
  if (entry.size() < 46) return std::nullopt;
  const std::uint64_t name_length = number_at(entry, 28, 2);
  if (name_length > entry.size() - 46) return std::nullopt;
  Member member;
  member.name = entry.substr(46, name_length);
  member.is_plain = (number_at(entry, 8, 2) & 8) == 0 && number_at(entry, 24, 4) != 0;
  member.is_deflated = number_at(entry, 10, 2) == 8;
  member.crc = static_cast<std::uint32_t>(number_at(entry, 16, 4));
  member.size = number_at(entry, 24, 4);
  member.payload = payload_of(file, number_at(entry, 42, 4), number_at(entry, 20, 4));
  return member;
}

std::string_view short_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

std::uint64_t alignment_of(const Archive& archive) {
  for (const Member& member : archive.members) {
    if (short_name(member.name) != ".storage_alignment") continue;
    const auto* const text = reinterpret_cast<const char*>(member.payload.data());
    std::uint64_t alignment = 0;
    std::from_chars(text, text + member.payload.size(), alignment);
    if (alignment > 0 && alignment <= 32768) return alignment;
  }
  return 64;
}

// Reads as much as possible: all central entries, wherever they are.
Archive read(std::string_view file) {
  Archive archive;
  for (std::size_t at = file.find(central_signature); at != std::string_view::npos;
       at = file.find(central_signature, at + 4))
    if (std::optional<Member> member = member_of(file, file.substr(at)))
      archive.members.push_back(std::move(*member));
  archive.alignment = alignment_of(archive);
  return archive;
}

Bytes lay_out(const Archive& archive, Random& random) {
  test::ArchiveBuilder builder(archive.alignment);
  for (const Member& member : archive.members) {
    const std::string_view name = std::string_view(member.name).substr(0, 1000);
    const std::string_view payload(reinterpret_cast<const char*>(member.payload.data()),
                                   member.payload.size());
    if (member.is_deflated)
      builder.add_stored_as(name, member.payload, member.size, zip::Method::deflated, member.crc);
    else if (member.is_plain)
      builder.add_plain(name, payload);
    else
      builder.add(name, payload);
  }
  return random.once_in(8) ? builder.finish_classic() : builder.finish();
}

template <class Texts>
std::string_view one_of(const Texts& from, Random& random) {
  return from[random.below(from.size())];
}

std::string name_in(const Archive& archive, Random& random) {
  std::string top = "archive/";
  if (!archive.members.empty()) {
    const std::string& first = archive.members.front().name;
    top = first.substr(0, first.find('/') + 1);
  }
  return top + std::string(one_of(names, random));
}

Member make_member(const Archive& archive, Random& random) {
  Member made;
  made.name = name_in(archive, random);
  made.payload = test::to_bytes(one_of(contents, random));
  made.is_plain = random.once_in(4);
  return made;
}

void change_payload(Member& member, Random& random) {
  if (member.name.ends_with(".pkl") && !member.is_deflated && !random.once_in(8))
    member.payload = mutate_pickle(member.payload, random);
  else if (random.once_in(8))
    member.payload = test::to_bytes(one_of(contents, random));
  else
    mutate_bytes(member.payload);
}

void change_method(Member& member, Random& random) {
  if (member.is_deflated || random.once_in(4)) {
    member.is_deflated = !member.is_deflated;
    return;
  }
  Bytes packed = zip::deflate(member.payload);
  if (packed.empty()) {
    member.is_plain = !member.is_plain;
    return;
  }
  member.size = member.payload.size();
  member.crc = zip::crc32(member.payload);
  member.payload = std::move(packed);
  member.is_deflated = true;
}

Member& most_interesting(Archive& archive, Random& random) {
  for (Member& member : archive.members)
    if (short_name(member.name) == "data.pkl" && !random.once_in(3)) return member;
  return archive.members[random.below(archive.members.size())];
}

void change(Archive& archive, Random& random) {
  std::vector<Member>& members = archive.members;
  if (members.empty()) return members.push_back(make_member(archive, random));
  const std::size_t at = random.below(members.size());
  const auto place = members.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(14)) {
    case 0:
      members.insert(place, make_member(archive, random));
      return;
    case 1: {
      const Member copied = members[random.below(members.size())];
      members.insert(place, copied);
      return;
    }
    case 2:
      members.erase(place);
      return;
    case 3:
      std::swap(*place, members[random.below(members.size())]);
      return;
    case 4:
      place->name = name_in(archive, random);
      return;
    case 5:
      return mutate_bytes(place->name);
    case 6:
      return change_method(*place, random);
    case 7:
      archive.alignment = 1 + random.number() % 4096;
      return;
    default:
      return change_payload(most_interesting(archive, random), random);
  }
}

// Overwrites a number in one of the headers.
void spoil_field(Bytes& file, Random& random) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  std::vector<std::size_t> headers;
  for (std::size_t at = text.find("PK"); at != std::string_view::npos; at = text.find("PK", at + 1))
    headers.push_back(at);
  if (headers.empty()) return;
  const std::size_t at = headers[random.below(headers.size())] + random.below(60);
  const std::size_t width = std::size_t{1} << random.below(4);
  if (at > file.size() || file.size() - at < width) return;
  std::uint64_t value = random.number();
  if (random.once_in(2)) value = number_at(text, at, width) + random.below(9) - 4;
  test::patch(file, at, value, static_cast<int>(width));
}

}  // namespace

std::vector<std::byte> mutate_zip(std::span<const std::byte> file, Random& random) {
  Archive archive = read({reinterpret_cast<const char*>(file.data()), file.size()});
  if (archive.members.empty() && !random.once_in(8)) return mutate_pickle(file, random);
  for (std::size_t changes = random.below(3) + 1; changes > 0; --changes) change(archive, random);
  Bytes made = lay_out(archive, random);
  if (random.once_in(4)) spoil_field(made, random);
  if (random.once_in(32)) mutate_bytes(made);
  return made;
}

}  // namespace weightmap::fuzz
