// Reads scattered rows of a table in this fresh process, in one way, and prints the cost of a batch
// as one JSON object.
//
//   rows_once FILE TENSOR --way WAY [--rows 48] [--batches 40] [--zipf] [--cached] [--budget BYTES]
//             [--hold] [--write-ids FILE]
//
// The ways: weightmap (RowReader); mapping (memcpy out of the mapping as it is), random (with
// MADV_RANDOM), willneed (with MADV_WILLNEED for the rows first), both; pread16 and direct16 (16
// threads, the latter with O_DIRECT).
// Without --cached the file is evicted first; the figure is the median of all batches, few enough
// that read-ahead has not brought the whole table before the last. With it, that of the second
// half. Equal arguments read equal rows in each way, and their checksum is printed. With --hold the
// process keeps what it has mapped until its standard input ends. --write-ids writes the numbers of
// all batches as int64, for a program in another language, and reads nothing.
// bench/interleave compares.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/proc_value.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

namespace {

using weightmap::Checkpoint;
using weightmap::RowReader;
using weightmap::TensorView;
using Ids = std::vector<std::int64_t>;
using Bytes = std::span<std::byte>;

struct Arguments {
  std::string file, tensor, way = "weightmap";
  std::size_t rows = 48, batches = 40;
  bool zipf = false, cached = false, hold = false;
  std::string ids_file;
  std::uint64_t budget = weightmap::RowOptions().budget_bytes;
};

constexpr std::uint64_t page_bytes = 4096;
constexpr unsigned threads = 16;

struct Table {
  const std::byte* data;
  std::uint64_t row_bytes;
  std::int64_t rows;
  std::uint64_t file_offset;
  int file, direct;

  std::byte* page_of(std::int64_t row) const { return page_at(place(row)); }
  std::byte* last_page_of(std::int64_t row) const { return page_at(place(row + 1) - 1); }
  std::byte* page_at(std::uint64_t offset) const {
    const auto address = reinterpret_cast<std::uintptr_t>(data) + offset;
    return reinterpret_cast<std::byte*>(address / page_bytes * page_bytes);
  }
  std::uint64_t place(std::int64_t row) const {
    return static_cast<std::uint64_t>(row) * row_bytes;
  }
};

// Uniform; or a few ids often and most of them seldom, as words are.
class IdSource {
 public:
  IdSource(std::int64_t rows, bool zipf) : rows_(rows), zipf_(zipf) {}
  Ids next(std::size_t count) {
    Ids ids(count);
    for (std::int64_t& id : ids) {
      const double part = static_cast<double>(random_() >> 11) * 0x1p-53;
      const double rank = std::exp(part * std::log(static_cast<double>(rows_)));  // of a Zipf law
      const std::uint64_t number = zipf_ ? static_cast<std::uint64_t>(rank) : random_();
      id = static_cast<std::int64_t>(number * 0x9E3779B97F4A7C15u %
                                     static_cast<std::uint64_t>(rows_));
    }
    return ids;
  }

 private:
  std::int64_t rows_;
  bool zipf_;
  std::mt19937_64 random_{42};
};

void copy(const Table& table, const Ids& ids, Bytes out) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::memcpy(out.data() + i * table.row_bytes, table.data + table.place(ids[i]),
                table.row_bytes);
}

void begin_to_read(const Table& table, const Ids& ids) {
  for (const std::int64_t id : ids) madvise(table.page_of(id), 2 * page_bytes, MADV_WILLNEED);
}

void on_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::jthread> all;
  for (unsigned thread = 0; thread < std::min<std::size_t>(threads, count); ++thread)
    all.emplace_back([&, thread] {
      for (std::size_t i = thread; i < count; i += threads) work(i);
    });
}

void pread_all(const Table& table, const Ids& ids, Bytes out) {
  on_threads(ids.size(), [&](std::size_t i) {
    if (pread(table.file, out.data() + i * table.row_bytes, table.row_bytes,
              static_cast<off_t>(table.file_offset + table.place(ids[i]))) < 0)
      std::abort();
  });
}

void read_directly(const Table& table, const Ids& ids, Bytes out) {
  on_threads(ids.size(), [&](std::size_t i) {
    alignas(page_bytes) std::byte pages[2 * page_bytes];
    const std::uint64_t at = table.file_offset + table.place(ids[i]);
    if (pread(table.direct, pages, sizeof pages, static_cast<off_t>(at / page_bytes * page_bytes)) <
        0)
      std::abort();
    std::memcpy(out.data() + i * table.row_bytes, pages + at % page_bytes, table.row_bytes);
  });
}

using Read = std::function<void(const Ids&, Bytes)>;

// Exits with 2 for a way that there is not.
Read way_of(const Arguments& arguments, const Checkpoint& checkpoint, const Table& table) {
  const auto advise = [&](weightmap::Access access) {
    if (!weightmap::advise(checkpoint, *checkpoint.find(arguments.tensor), access)) std::abort();
  };
  const std::map<std::string, std::function<Read()>> ways = {
      {"weightmap",
       [&]() -> Read {
         auto rows = std::make_shared<RowReader>(
             RowReader::of(checkpoint, {arguments.tensor}, {arguments.budget}).value());
         return [rows](const Ids& ids, Bytes out) {
           if (!rows->gather(ids, {out})) std::abort();
         };
       }},
      {"mapping",
       [&]() -> Read { return [&](const Ids& ids, Bytes out) { copy(table, ids, out); }; }},
      {"random",
       [&]() -> Read {
         advise(weightmap::Access::random);
         return [&](const Ids& ids, Bytes out) { copy(table, ids, out); };
       }},
      {"willneed",
       [&]() -> Read {
         return [&](const Ids& ids, Bytes out) {
           begin_to_read(table, ids);
           copy(table, ids, out);
         };
       }},
      {"both",
       [&]() -> Read {
         advise(weightmap::Access::random);
         return [&](const Ids& ids, Bytes out) {
           begin_to_read(table, ids);
           copy(table, ids, out);
         };
       }},
      {"pread16",
       [&]() -> Read {
         posix_fadvise(table.file, 0, 0, POSIX_FADV_RANDOM);
         return [&](const Ids& ids, Bytes out) { pread_all(table, ids, out); };
       }},
      {"direct16",
       [&]() -> Read {
         return [&](const Ids& ids, Bytes out) { read_directly(table, ids, out); };
       }},
  };
  const auto found = ways.find(arguments.way);
  if (found == ways.end()) {
    std::fprintf(stderr, "rows_once: there is no way %s\n", arguments.way.c_str());
    std::exit(2);
  }
  return found->second();
}

int write_ids(const Arguments& arguments, IdSource source) {
  std::ofstream file(arguments.ids_file, std::ios::binary);
  for (std::size_t batch = 0; batch < arguments.batches; ++batch) {
    const Ids ids = source.next(arguments.rows);
    file.write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof ids[0]));
  }
  return file.flush() ? 0 : (std::perror(arguments.ids_file.c_str()), 1);
}

int measure(const Arguments& arguments) {
  const int file = open(arguments.file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::perror(arguments.file.c_str()), 1;
  if (!arguments.cached) posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  const auto checkpoint = Checkpoint::open(arguments.file);
  if (!checkpoint) return std::fprintf(stderr, "%s\n", to_string(checkpoint.error()).c_str()), 1;
  const auto tensor = checkpoint->get(arguments.tensor);
  if (!tensor) return std::fprintf(stderr, "%s\n", to_string(tensor.error()).c_str()), 1;
  const std::int64_t rows = tensor->view.shape()[0];
  const Table table{
      tensor->view.bytes().data(),
      tensor->view.nbytes() / static_cast<std::uint64_t>(rows),
      rows,
      static_cast<std::uint64_t>(tensor->view.bytes().data() - checkpoint->mapping().data()),
      file,
      open(arguments.file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)};
  IdSource source(rows, arguments.zipf);
  if (!arguments.ids_file.empty()) return write_ids(arguments, source);
  const Read read = way_of(arguments, *checkpoint, table);
  std::set<std::byte*> pages;
  std::vector<std::byte> out(arguments.rows * table.row_bytes);
  std::vector<double> times;
  std::uint64_t sum = 0;
  long long disk_bytes = 0;
  for (std::size_t batch = 0; batch < arguments.batches; ++batch) {
    const Ids ids = source.next(arguments.rows);
    const long long before = proc_value("/proc/self/io", "read_bytes:");
    const auto began = std::chrono::steady_clock::now();
    read(ids, out);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - began;
    if (batch >= (arguments.cached ? arguments.batches / 2 : 0)) {
      times.push_back(time.count());
      disk_bytes += proc_value("/proc/self/io", "read_bytes:") - before;
    }
    for (const std::int64_t id : ids) pages.insert({table.page_of(id), table.last_page_of(id)});
    for (const std::byte byte : out) sum = sum * 31 + static_cast<std::uint64_t>(byte);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  std::printf(
      "{\"batch_us\": %.1f, \"disk_kib\": %lld, \"rss_file_kib\": %lld, \"touched_kib\": %zu, "
      "\"sum\": %llu}\n",
      times[times.size() / 2], disk_bytes / 1024 / static_cast<long long>(times.size()),
      proc_value("/proc/self/status", "RssFile:"), pages.size() * page_bytes / 1024,
      static_cast<unsigned long long>(sum % 1000003));
  std::fflush(stdout);
  while (arguments.hold && std::getchar() != EOF) continue;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Reads scattered rows of a table in one way, and prints the cost of a batch.");
  app.add_option("FILE", arguments.file)->required();
  app.add_option("TENSOR", arguments.tensor)->required();
  app.add_option("--way", arguments.way,
                 "weightmap, mapping, random, willneed, both, pread16, direct16");
  app.add_option("--rows", arguments.rows, "of a batch")->check(CLI::PositiveNumber);
  app.add_option("--batches", arguments.batches)->check(CLI::PositiveNumber);
  app.add_flag("--zipf", arguments.zipf, "A few rows often, most of them seldom");
  app.add_flag("--cached", arguments.cached, "The file is in the page cache");
  app.add_option("--budget", arguments.budget, "Bytes, of weightmap");
  app.add_flag("--hold", arguments.hold, "Stays until its standard input ends");
  app.add_option("--write-ids", arguments.ids_file, "Writes the numbers of the rows, and no more");
  CLI11_PARSE(app, argc, argv);
  return measure(arguments);
}
