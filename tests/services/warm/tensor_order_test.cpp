// Orders of tensors as text: what is written comes back, and what people write is understood.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::data;
using test::opened;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

using Order = std::vector<std::size_t>;

// Reads an order that is `text`, for training.pt.
Result<TensorOrder> read(std::string_view text) {
  const TemporaryFolder folder;
  return load_tensor_order(opened(data / "training.pt"), folder.write("order", text));
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// Where orders of the tensors of training.pt are written to.
struct Orders {
  TemporaryFolder folder;
  fs::path path = folder.path() / "order";
  Checkpoint training = opened(data / "training.pt");
};

}  // namespace

TEST_CASE_FIXTURE(Orders, "writes a comment and a name a line") {
  REQUIRE_OK(save_tensor_order(training, Order{2, 0}, path));
  CHECK(test::read_file(path) ==
        "# The order in which tensors are needed first, for: weightmap warm --order\n"
        "model.2.weight\nmodel.0.weight\n");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE_FIXTURE(Orders, "reads back what it wrote, whatever the names are") {
  for (const char* name : {"training.pt", "names.pt", "tensor_root.pt", "colliding_names.pt"}) {
    CAPTURE(name);
    const Checkpoint checkpoint = opened(data / name);
    Order order(checkpoint.tensors().size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    REQUIRE_OK(save_tensor_order(checkpoint, order, path));
    const Result<TensorOrder> read = load_tensor_order(checkpoint, path);
    REQUIRE_OK(read);
    CHECK(read->unmatched_lines == 0);
    if (name != std::string("colliding_names.pt")) CHECK(read->tensors == order);
    CHECK(read->tensors.size() == order.size());
  }
}

TEST_CASE_FIXTURE(Orders, "escapes what would not be a line or not be a name") {
  REQUIRE_OK(save_tensor_order(opened(data / "names.pt"), Order{6, 5, 4, 0}, path));
  CHECK(test::read_file(path).substr(75) ==
        "\\x20\nwith \\x22quotes\\x22 \\x5C and \\x0A newline\n\\\ngröße\n");
}

TEST_CASE("takes the lines that people write") {
  const Result<TensorOrder> order = read(
      "# mine\n\n  model.2.bias \t\r\nmodel.2.*\n   # "
      "more\n*.[01].bias\nmodel.2.bias\nmodel.2.bias");
  REQUIRE_OK(order);
  CHECK(order->tensors == Order{3, 2, 1});
  CHECK(order->unmatched_lines == 0);
}

TEST_CASE_FIXTURE(Orders, "takes both of two tensors that share a name") {
  const Checkpoint checkpoint = opened(data / "colliding_names.pt");
  const std::string_view name = checkpoint.tensors()[0].name;
  Order of_this_name;
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (tensor.name == name) of_this_name.push_back(tensor.index);
  REQUIRE(of_this_name.size() == 2);
  CHECK(load_tensor_order(checkpoint, folder.write("order", name))->tensors == of_this_name);
}

TEST_CASE("counts the lines that name nothing") {
  const Result<TensorOrder> order = read("gone.weight\nmodel.0.bias\nnew.*\n\\x6dodel.0.weight\n");
  REQUIRE_OK(order);
  CHECK(order->tensors == Order{1, 0});
  CHECK(order->unmatched_lines == 2);
}

TEST_CASE("an order without lines is empty") {
  const Result<TensorOrder> comments = read("# nothing\n\n");
  REQUIRE_OK(comments);
  CHECK(comments->tensors.empty());
  CHECK(read("")->tensors.empty());
}

TEST_CASE("refuses the order of another model") {
  CHECK_FAILS(read("a\nb\n# c\n"), ErrorCode::invalid_argument,
              "none of its lines (2) names a tensor of this one");
}

TEST_CASE_FIXTURE(Orders, "refuses an order that cannot be read") {
  const Result<TensorOrder> missing = load_tensor_order(training, folder.path() / "none");
  CHECK_FAILS(missing, ErrorCode::io, "cannot open the file: No such file or directory");
  CHECK(missing.error().file == (folder.path() / "none").string());
}

TEST_CASE_FIXTURE(Orders,
                  "refuses an order that is no regular file, and does not wait for a FIFO") {
  const fs::path pipe = folder.path() / "model.pt.order";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto refused = load_tensor_order(training, pipe);
  CHECK_FAILS(refused, ErrorCode::io, "is a FIFO (named pipe), expected a regular file");
  CHECK(refused.error().file == pipe);
  CHECK_FAILS(load_tensor_order(training, folder.path()), ErrorCode::io,
              "is a directory, expected a regular file");
}

TEST_CASE("refuses a line of more than 1 MiB") {
  const std::string most(1 << 20, 'a');
  CHECK(read(most + "\nmodel.0.bias\n")->tensors == Order{1});
  const Result<TensorOrder> refused = read("model.0.bias\n" + most + "a\n");
  CHECK_FAILS(refused, ErrorCode::limit_exceeded, "a line has more than 1 MiB");
  CHECK(refused.error().file_offset == 13);
}

TEST_CASE_FIXTURE(Orders, "refuses an order of more than 64 MiB") {
  folder.write("order", "model.0.bias\n");
  fs::resize_file(path, (64 << 20) + 1);
  CHECK_FAILS(load_tensor_order(training, path), ErrorCode::limit_exceeded,
              "the order has more than 64 MiB");
}

TEST_CASE("refuses wildcards that would take too long") {
  const std::string half = "*" + std::string((32 << 10) - 1, 'a') + "\n";
  CHECK(read("model.0.bias\n" + half + half)->unmatched_lines == 2);
  CHECK_FAILS(read("model.0.bias\n" + half + half + "*\n"), ErrorCode::limit_exceeded,
              "lines with wildcards have more than 64 KiB");
}

TEST_CASE_FIXTURE(Orders, "refuses to save a tensor that is not there") {
  CHECK_FAILS(save_tensor_order(training, Order{0, 17}, path), ErrorCode::invalid_argument,
              "there is no tensor 17 of 17");
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE_FIXTURE(Orders, "refuses to replace the checkpoint, by whatever name") {
  const fs::path model = folder.path() / "model.pt";
  fs::copy_file(data / "training.pt", model);
  fs::create_symlink("model.pt", folder.path() / "link");
  const Checkpoint checkpoint = opened(model);
  for (const char* name : {"model.pt", "link"})
    CHECK_FAILS(save_tensor_order(checkpoint, Order{0}, folder.path() / name),
                ErrorCode::invalid_argument, "would replace the checkpoint");
  CHECK(fs::file_size(model) == 6599);
}

TEST_CASE_FIXTURE(Orders, "refuses to replace what is no file, and to write where it cannot") {
  CHECK_FAILS(save_tensor_order(training, Order{0}, folder.path()), ErrorCode::invalid_argument,
              "is not a regular file");
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_FAILS(save_tensor_order(training, Order{0}, pipe), ErrorCode::invalid_argument,
              "is not a regular file");
  CHECK(fs::is_fifo(pipe));
  CHECK_FAILS(save_tensor_order(training, Order{0}, folder.path() / "none" / "order"),
              ErrorCode::io, "cannot open the directory: No such file or directory");
}

TEST_CASE_FIXTURE(Orders, "replaces an order while others read it") {
  REQUIRE_OK(save_tensor_order(training, Order{1}, path));
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) (void)save_tensor_order(training, Order{3, 4, 5}, path);
  });
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) (void)save_tensor_order(training, Order{1}, path);
  });
  for (int i = 0; i < 100; ++i) {
    const Result<TensorOrder> order = load_tensor_order(training, path);
    REQUIRE_OK(order);
    CHECK((order->tensors == Order{1} || order->tensors == Order{3, 4, 5}));
  }
  writer.join();
  other.join();
  CHECK(files_in(folder.path()) == 1);
}
