// Which files of a folder are its checkpoint: by their names alone.
#include "runtime/formats/sets/select_files.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/formats/sets/file_names.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using test::TemporaryFolder;

namespace {

using Names = std::vector<std::string>;

// What is chosen of a folder that has files with these names.
Result<sets::Selection> select(const Names& files, std::string_view variant = {}) {
  const TemporaryFolder folder;
  for (const std::string& file : files) folder.write(file, "");
  return sets::select_files(folder.path(), variant);
}

Result<Names> chosen(const Names& files) {
  Result<sets::Selection> selected = select(files);
  if (!selected) return tl::unexpected<Error>(selected.error());
  return std::move(selected->files);
}

void check_chosen(const Names& files, const Names& expected, const Names& not_opened = {},
                  std::string_view variant = {}) {
  const sets::Selection selected = select(files, variant).value();
  CHECK(selected.files == expected);
  CHECK(selected.not_opened == not_opened);
}

void check_refused(const Names& files, ErrorCode code, const std::string& message) {
  const Result<Names> names = chosen(files);
  REQUIRE_FALSE(names.has_value());
  CHECK(names.error().code == code);
  CHECK(names.error().message == message);
}

constexpr auto ambiguous = ErrorCode::invalid_argument;

void check_several(const Names& files, const std::string& named, const std::string& more = "") {
  check_refused(
      files, ambiguous,
      "is a folder of several checkpoints: " + named + "; open one of them by its name" + more);
}

void check_missing(const Names& files, const std::string& are_there, int missing,
                   const std::string& as_in) {
  check_refused(files, ErrorCode::not_found,
                "is a folder of " + are_there + " and no index: shard " + std::to_string(missing) +
                    " is missing, as in \"" + as_in + "\"");
}

}  // namespace

TEST_CASE("an index of safetensors shards comes before all other files") {
  check_chosen({"model.safetensors.index.json", "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors", "config.json", "tokenizer.json"},
               {"model.safetensors.index.json"});
  check_chosen({"model.safetensors.index.json"}, {"model.safetensors.index.json"});
  check_chosen({"model.safetensors.index.json", "consolidated.safetensors", "other.safetensors"},
               {"model.safetensors.index.json"});
  check_chosen(
      {"model.safetensors.index.json", "pytorch_model.bin.index.json", "pytorch_model.bin"},
      {"model.safetensors.index.json"});
}

TEST_CASE("an index may have another stem and a variant") {
  check_chosen({"diffusion_pytorch_model.safetensors.index.json", "a.safetensors"},
               {"diffusion_pytorch_model.safetensors.index.json"});
  check_chosen({"model.safetensors.index.fp16.json", "a.safetensors"},
               {"model.safetensors.index.fp16.json"});
}

TEST_CASE("of two indexes the one without a variant is chosen, and else none") {
  check_chosen({"model.safetensors.index.json", "model.safetensors.index.fp16.json"},
               {"model.safetensors.index.json"}, {"model.safetensors.index.fp16.json"});
  check_chosen({"model.safetensors.index.json", "model.safetensors.fp16.index.json"},
               {"model.safetensors.index.json"}, {"model.safetensors.fp16.index.json"});
  check_chosen({"model.safetensors.index.json", "model.fp16.safetensors.index.json"},
               {"model.safetensors.index.json"}, {"model.fp16.safetensors.index.json"});
  check_several({"a.safetensors.index.json", "b.safetensors.index.json"},
                R"("a.safetensors.index.json" and "b.safetensors.index.json")");
  check_several({"a.safetensors.index.fp16.json", "a.safetensors.index.bf16.json"},
                R"("a.safetensors.index.bf16.json" and "a.safetensors.index.fp16.json")");
}

TEST_CASE("the one usual file comes before an index, as in transformers") {
  check_chosen({"model.safetensors.index.json", "model.safetensors", "x.safetensors"},
               {"model.safetensors"}, {"model.safetensors.index.json"});
  check_chosen({"pytorch_model.bin.index.json", "pytorch_model.bin"}, {"pytorch_model.bin"},
               {"pytorch_model.bin.index.json"});
}

TEST_CASE("an index of a variant is an index, wherever its name has the variant") {
  for (const std::string index : {"x.safetensors.index.fp16.json", "x.safetensors.fp16.index.json",
                                  "x.fp16.safetensors.index.json"})
    for (const std::string_view variant : {"", "fp16"})
      check_chosen(
          {index, "x-00001-of-00002.fp16.safetensors", "x-00002-of-00002.fp16.safetensors"},
          {index}, {}, variant);
}

TEST_CASE("shards of a variant are a set, wherever their names have the variant") {
  for (const Names& shards :
       {Names{"x-00001-of-00002.fp16.safetensors", "x-00002-of-00002.fp16.safetensors"},
        Names{"x.fp16-00001-of-00002.safetensors", "x.fp16-00002-of-00002.safetensors"}}) {
    check_chosen(shards, shards);
    check_chosen(shards, shards, {}, "fp16");
    Names all = shards;
    all.insert(all.end(), {"x-00001-of-00002.safetensors", "x-00002-of-00002.safetensors"});
    check_chosen(all, {"x-00001-of-00002.safetensors", "x-00002-of-00002.safetensors"}, shards);
    check_chosen(all, shards, {}, "fp16");
  }
}

TEST_CASE("a file without a variant comes before its variants") {
  check_chosen({"x.safetensors", "x.fp16.safetensors"}, {"x.safetensors"}, {"x.fp16.safetensors"});
  check_chosen({"x.safetensors", "x.fp16.safetensors"}, {"x.fp16.safetensors"}, {}, "fp16");
  check_chosen({"x.fp16.safetensors"}, {"x.fp16.safetensors"});
  check_several({"v1.safetensors", "v1.5.safetensors"},
                R"("v1.5.safetensors" and "v1.safetensors")");
}

TEST_CASE("variants of the usual file and of an index are named as left out") {
  check_chosen({"model.safetensors", "model.fp16.safetensors", "other.safetensors"},
               {"model.safetensors"}, {"model.fp16.safetensors"});
  check_chosen({"pytorch_model.bin", "pytorch_model.fp16.bin", "training_args.bin"},
               {"pytorch_model.bin"}, {"pytorch_model.fp16.bin"});
  check_chosen({"model.safetensors", "model.safetensors.index.fp16.json",
                "model.fp16-00001-of-00002.safetensors", "model.fp16-00002-of-00002.safetensors"},
               {"model.safetensors"}, {"model.safetensors.index.fp16.json"});
  check_chosen({"model.safetensors.index.json", "model-00001-of-00001.safetensors",
                "model.fp16-00001-of-00002.safetensors", "model.fp16-00002-of-00002.safetensors"},
               {"model.safetensors.index.json"}, {"model.fp16-00001-of-00002.safetensors"});
  check_chosen({"model.safetensors", "model.fp16.safetensors"}, {"model.fp16.safetensors"}, {},
               "fp16");
}

TEST_CASE("with a variant model.fp16.safetensors comes before its index, and .bin follows") {
  check_chosen({"model.fp16.safetensors", "model.safetensors.index.fp16.json"},
               {"model.fp16.safetensors"}, {"model.safetensors.index.fp16.json"}, "fp16");
  check_chosen({"model.safetensors", "pytorch_model.fp16.bin"}, {"pytorch_model.fp16.bin"}, {},
               "fp16");
}

TEST_CASE("a variant that no file has is refused") {
  CHECK_FAILS(select({"model.safetensors", "x.bf16.safetensors"}, "fp16"), ErrorCode::not_found,
              "is a folder in which no checkpoint has the variant \"fp16\" in its name");
}

TEST_CASE("an error about several names those of other extensions, too") {
  check_several({"a.safetensors", "b.safetensors", "c.pt", "d.ckpt", "e.bin", "f.gguf", "g.json"},
                R"("a.safetensors" and "b.safetensors")",
                R"(; beside them are "c.pt", "d.ckpt", "e.bin" and "f.gguf")");
  check_several({"a.safetensors", "b.safetensors", "c.pt"},
                R"("a.safetensors" and "b.safetensors")", R"(; beside them is "c.pt")");
}

TEST_CASE("a folder of folders with checkpoints names them") {
  const TemporaryFolder folder;
  for (const char* name : {"unet", "vae", "tokenizer"})
    std::filesystem::create_directory(folder.path() / name);
  folder.write("model_index.json", "");
  folder.write("unet/diffusion_pytorch_model.safetensors", "");
  folder.write("vae/diffusion_pytorch_model.bin", "");
  folder.write("tokenizer/vocab.json", "");
  CHECK_FAILS(
      sets::select_files(folder.path()), ErrorCode::not_a_checkpoint,
      "there is no checkpoint: expected an index of shards, *.safetensors, *.bin, *.gguf, "
      "or one file of another format; \"unet/\" and \"vae/\" below have one, and can be opened");
}

TEST_CASE("model.safetensors comes before other safetensors files") {
  check_chosen({"model.safetensors", "adapter.safetensors", "consolidated.safetensors"},
               {"model.safetensors"});
  check_chosen({"model.safetensors", "model-00001-of-00002.safetensors"}, {"model.safetensors"});
}

TEST_CASE("the only safetensors file is chosen, whatever its name") {
  check_chosen({"anything at all.safetensors", "config.json", "README.md"},
               {"anything at all.safetensors"});
  check_chosen({"model-00001-of-00001.safetensors"}, {"model-00001-of-00001.safetensors"});
  check_chosen({"model-1-of-2.safetensors"}, {"model-1-of-2.safetensors"});
}

TEST_CASE("safetensors come before .bin") {
  check_chosen({"x.safetensors", "pytorch_model.bin"}, {"x.safetensors"});
  check_chosen({"model.safetensors", "pytorch_model.bin.index.json"}, {"model.safetensors"});
}

TEST_CASE("of several safetensors files that are no set none is chosen") {
  check_several({"b.safetensors", "a.safetensors"}, R"("a.safetensors" and "b.safetensors")");
  check_several(
      {"1.safetensors", "2.safetensors", "3.safetensors", "4.safetensors", "5.safetensors",
       "6.safetensors", "7.safetensors", "8.safetensors"},
      R"("1.safetensors", "2.safetensors", "3.safetensors", "4.safetensors", "5.safetensors", "6.safetensors", "7.safetensors" and "8.safetensors")");
}

TEST_CASE("a complete set without an index is chosen in its order") {
  check_chosen({"model-00003-of-00003.safetensors", "model-00001-of-00003.safetensors",
                "model-00002-of-00003.safetensors", "config.json"},
               {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors"});
  check_chosen({"-00001-of-00002.safetensors", "-00002-of-00002.safetensors"},
               {"-00001-of-00002.safetensors", "-00002-of-00002.safetensors"});
}

TEST_CASE("a set of which shards are missing is refused, with the first of them") {
  check_missing({"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"},
                "2 shards of 3", 2, "model-00001-of-00003.safetensors");
  check_missing({"model-00002-of-00002.safetensors"}, "1 shard of 2", 1,
                "model-00002-of-00002.safetensors");
  check_missing({"x-00001-of-99999.safetensors", "x-00002-of-99999.safetensors"},
                "2 shards of 99999", 3, "x-00001-of-99999.safetensors");
}

TEST_CASE("a set that is not whole is not made up for by .bin files") {
  check_missing({"model-00001-of-00002.safetensors", "pytorch_model.bin"}, "1 shard of 2", 2,
                "model-00001-of-00002.safetensors");
}

TEST_CASE("shards of two sets, or of a set and something else, are ambiguous") {
  for (const char* other :
       {"other-00001-of-00002.safetensors", "model-00001-of-00003.safetensors",
        "consolidated.safetensors", "model-00003-of-00002.safetensors",
        "model-00000-of-00002.safetensors", "model-0001-of-0002.safetensors",
        "model_00001-of-00002.safetensors", "model-00001-of-0000x.safetensors"}) {
    CAPTURE(other);
    const Result<Names> names =
        chosen({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", other});
    REQUIRE_FALSE(names.has_value());
    CHECK(names.error().code == ambiguous);
    CHECK(names.error().message.find(other) != std::string::npos);
    CHECK(names.error().message.find("\"model-00001-of-00002.safetensors\"") != std::string::npos);
  }
}

TEST_CASE("a shard of none is no shard") {
  CHECK_FALSE(chosen({"model-00000-of-00000.safetensors"}).has_value());
  CHECK_FALSE(chosen({"a-00001-of-00000.safetensors", "a-00002-of-00000.safetensors"}).has_value());
}

TEST_CASE("of .bin files an index, pytorch_model.bin or a complete set is chosen") {
  check_chosen({"pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"},
               {"pytorch_model.bin.index.json"});
  check_chosen({"pytorch_model.bin", "training_args.bin", "optimizer.bin"}, {"pytorch_model.bin"});
  check_chosen(
      {"pytorch_model-00002-of-00002.bin", "pytorch_model-00001-of-00002.bin", "training_args.bin"},
      {"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"});
  check_chosen({"pytorch_model-00001-of-00001.bin"}, {"pytorch_model-00001-of-00001.bin"});
}

TEST_CASE("the only .bin file is chosen, whatever its name, after all others") {
  for (const char* name : {"adapter_model.bin", "diffusion_pytorch_model.bin", "x.fp16.bin"})
    check_chosen({name, "training_args.bin", "optimizer.bin", "scheduler.bin"}, {name});
  check_chosen({"a.bin", "b.gguf"}, {"b.gguf"});
  check_several({"a.bin", "b.bin"}, R"("a.bin" and "b.bin")");
  CHECK_FAILS(chosen({"training_args.bin"}), ErrorCode::not_a_checkpoint, "there is no checkpoint");
}

TEST_CASE("a .bin set must be whole and alone, too") {
  check_missing({"pytorch_model-00001-of-00002.bin", "training_args.bin"}, "1 shard of 2", 2,
                "pytorch_model-00001-of-00002.bin");
  check_several({"a-00001-of-00001.bin", "b-00001-of-00001.bin"},
                R"("a-00001-of-00001.bin" and "b-00001-of-00001.bin")");
}

TEST_CASE("a folder without any of these is refused, with what was looked for") {
  for (const Names& files : {Names{},
                             {"README.md"},
                             {"config.json"},
                             {".model.pt"},
                             {"model.SAFETENSORS"},
                             {"model.safetensors.json"},
                             {"index.json"},
                             {"model.safetensors.part"},
                             {"model.GGUF"}})
    check_refused(files, ErrorCode::not_a_checkpoint,
                  "is a folder in which there is no checkpoint: expected an index of shards, "
                  "*.safetensors, *.bin, *.gguf, or one file of another format");
}

TEST_CASE("the only file of a format that is one file is chosen, after all others") {
  for (const char* ending : {".pt", ".pth", ".ckpt", ".pt2", ".th", ".pkl", ".pickle", ".joblib",
                             ".npz", ".npy", ".pdparams"})
    check_chosen({"config.json", "thing" + std::string(ending), "thing.onnx"},
                 {"thing" + std::string(ending)});
  check_chosen({"x.npz", "a.bin"}, {"a.bin"});
  check_chosen({"optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state_0.pth", "x.ckpt"},
               {"x.ckpt"});
  check_several({"b.pt", "a.ckpt", "optimizer.pt", "c.onnx"}, R"("a.ckpt" and "b.pt")");
  CHECK_FAILS(chosen({"optimizer.pt", "rng_state_0.pth"}), ErrorCode::not_a_checkpoint,
              "there is no checkpoint");
}

TEST_CASE("without any, a file is chosen whose refusal says what to do") {
  for (const char* ending : {".nemo", ".mar", ".llamafile", ".onnx", ".h5", ".hdf5", ".keras",
                             ".tflite", ".pte", ".ptd", ".msgpack", ".ubj", ".skops", ".mlmodel"})
    check_chosen({"config.json", "thing" + std::string(ending)}, {"thing" + std::string(ending)});
  check_chosen({"b.onnx", "a.h5"}, {"a.h5"});
}

TEST_CASE("a folder of DeepSpeed is refused, with where its files are") {
  check_refused(
      {"latest", "zero_to_fp32.py", "zero_to_torch.py"}, ErrorCode::not_a_checkpoint,
      "is a checkpoint of DeepSpeed, whose file \"latest\" names the folder of its files; "
      "open one of these, or join the parts of all ranks with zero_to_fp32.py and open "
      "what that writes");
  check_chosen({"latest", "zero_to_fp32.py", "pytorch_model.bin"}, {"pytorch_model.bin"});
}

TEST_CASE("a folder of a distributed checkpoint is that, whatever else is in it") {
  check_chosen({".metadata", "__0.metadata", "__0_0.distcp", "model.safetensors"}, {".metadata"});
  check_chosen({"__0.metadata", "__0_0.distcp", "__1.metadata", "model.safetensors"},
               {"__0.metadata", "__1.metadata"});
  CHECK_FAILS(chosen({"__1.metadata", "model.safetensors"}), ErrorCode::not_found,
              R"(is a folder of torch.distributed.checkpoint in which "__0.metadata" is missing)");
  CHECK_FAILS(chosen({"__0.metadata", "__2.metadata"}), ErrorCode::not_found,
              R"(in which "__1.metadata" is missing)");
  CHECK_FAILS(chosen({"__0_0.distcp", "model.safetensors"}), ErrorCode::not_found,
              "without .metadata, which is written last: the save did not end");
  check_chosen({"metadata", "_.metadata", "x.metadata", "model.safetensors"},
               {"model.safetensors"});
}

TEST_CASE("an error escapes names of files") {
  CHECK_FAILS(chosen({"a\n.safetensors", "b\x1b.safetensors"}), ambiguous,
              R"("a\x0A.safetensors" and "b\x1B.safetensors")");
}

TEST_CASE("a folder that cannot be read is an error of the system") {
  const TemporaryFolder folder;
  const auto missing = sets::select_files(folder.path() / "missing");
  CHECK_FAILS(missing, ErrorCode::io, "cannot read the folder: No such file or directory");
  CHECK(missing.error().os_error == ENOENT);
  const auto file = sets::select_files(folder.write("model.safetensors", ""));
  CHECK_FAILS(file, ErrorCode::io, "cannot read the folder: Not a directory");
  CHECK(file.error().os_error == ENOTDIR);
}

TEST_CASE("what begins with a dot is neither a file of weights nor an index") {
  check_chosen({"._model.safetensors", "model.safetensors"}, {"model.safetensors"});
  check_chosen({"._model.safetensors.index.json", "model.safetensors"}, {"model.safetensors"});
}

TEST_CASE("files of the ranks of a cut save are a set, whatever is missing") {
  const Names ranks{"shard-00001-model-00001-of-00001.safetensors",
                    "shard-00003-model-00001-of-00001.safetensors"};
  check_chosen(ranks, ranks);
}

TEST_CASE("the name of a shard has five digits at least") {
  CHECK(sets::to_string({"model", 2, 3}, ".safetensors") == "model-00002-of-00003.safetensors");
  CHECK(sets::to_string({"m", 1, 123456}, ".gguf") == "m-00001-of-123456.gguf");
}
