// Files of other programs are named by their kind. The bytes are those that onnx 1.23, msgpack
// 1.2, numpy and Python wrote, or, where a comment says so, made by the published format.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/archive_builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/tar_builder.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::text_of;

namespace {

struct Fixture {
  test::TemporaryFolder folder;

  void names(const std::string& name, const std::string& content, const char* kind) {
    CAPTURE(name);
    const auto path = folder.write(name, content);
    CHECK_FAILS(Checkpoint::open(path), ErrorCode::not_a_checkpoint, kind);
  }
  void names_archive(const std::vector<std::pair<std::string, std::string>>& records,
                     const char* kind) {
    test::ArchiveBuilder builder;
    for (const auto& [name, content] : records) builder.add(name, content);
    names("archive.zip", text_of(builder.finish()), kind);
  }
};

const std::string zeros(600, '\0');

// A field of protocol buffers with a length.
std::string field(int number, const std::string& content) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(content.size()) +
         content;
}

const std::string onnx_graph =
    ":]\n\x11\n\x01x\n\x01w\x12\x01y\"\x06MatMul\x12\x01g*\x1b\x08\x02\x08\x02\x10\x01"
    "B\x01w"s;

}  // namespace

TEST_CASE_FIXTURE(Fixture, "names files of other programs by what they are") {
  // ONNX, with the name of its writer and without.
  names("a.onnx", "\x08\x0e" + onnx_graph, "is a model of ONNX; load it with onnx");
  names("b.onnx", "\x08\x0e\x12\x07pytorch" + onnx_graph, "is a model of ONNX");
  // Core ML: Model.proto of coremltools.
  names("a.mlmodel", "\x08\x07" + field(2, field(1, field(1, "image"))) + zeros,
        "is a model of Core ML (.mlmodel)");
  names("b.mlmodel", "\x08\x01" + field(2, field(1, field(1, "image"))) + zeros,
        "is a model of Core ML (.mlmodel)");
  // TensorFlow: SavedModel, a frozen graph, the index of a checkpoint: saved_model.proto,
  // graph.proto and table.cc of TensorFlow.
  names("saved_model.pb", "\x08\x01" + field(2, field(1, field(2, field(1, field(1, "Add"))))),
        "is the graph of a SavedModel of TensorFlow");
  names("frozen.pb", field(1, field(1, "x") + field(2, "Placeholder")) + zeros,
        "is a graph of TensorFlow (GraphDef)");
  names("model.ckpt.index", "\0\0\1\2\x08\1\x12\0"s + zeros + "\x57\xfb\x80\x8b\x24\x75\x47\xdb",
        "is the index of a checkpoint of TensorFlow; load it with tf.train.load_checkpoint");
  // TensorFlow Lite and ExecuTorch: The file identifiers of their flatbuffers.
  names("a.tflite", "\x1c\0\0\0TFL3"s + zeros, "is a model of TensorFlow Lite (LiteRT)");
  names("a.pte", "\x38\0\0\0ET12"s + zeros, "is a program of ExecuTorch (.pte)");
  names("a.ptd", "\x38\0\0\0FT01"s + zeros, "is data of ExecuTorch (.ptd)");
  // fastText: FASTTEXT_FILEFORMAT_MAGIC_INT32 and a version.
  names("a.ftz", "\xba\x16\x4f\x2f\x0c\0\0\0"s + zeros, "is a model of fastText");
  // word2vec in binary; numbers as text are only text: As gensim's
  // save_word2vec_format(binary=True) writes it.
  names("a.bin", "2 2\nthe \0\0\x80?\0\0\0@\nof \0\0\x80?\0\0\0@\n"s,
        "has the vectors of word2vec in binary; load it with gensim");
  names("a.txt", "2 2\nthe 1.0 2.0\nof 1.0 2.0\n", "is not a torch checkpoint");
  // msgpack of flax and spaCy.
  names("a.msgpack", "\x82\xa4step\x01\xa6params\x81\xa1k\xc4\x04\0\0\0\0"s,
        "is msgpack, as flax and spaCy write it");
  names("key2row", "\x80", "is msgpack, as flax and spaCy write it");
  names("b", "\xde\0\x10\xa1k\x01"s + zeros, "is msgpack");
  names("c", "\x81\xd9\x21" + std::string(33, 'k') + "\x01", "is msgpack");
  names("number", "\x83\x01\x02" + zeros, "is not a torch checkpoint");
  // XGBoost: UBJSON is not JSON, and JSON is no index: As XGBoost's save_model() writes: `{` and
  // the key "learner", whose length is a number of type `L`, of eight bytes, with an object in it
  // that begins likewise.
  names("a.ubj", "{L\0\0\0\0\0\0\0\x07learner{L\0\0\0\0\0\0\0\x0a"s + zeros,
        "is UBJSON, as XGBoost writes models (.ubj); load it with xgboost");
  names("a.json", R"({"learner":{"attributes":{}},"version":[2,1,4]})",
        "is a model of XGBoost as JSON; load it with xgboost");
  names("b.json", R"({"other":{}})", "is JSON without a weight_map, so it is no index of shards");
  // Keras: an archive, HDF5, and the index of several.
  names_archive({{"metadata.json", "{}"}, {"config.json", "{}"}, {"model.weights.h5", "\x89HDF"}},
                "is a model of Keras (.keras); load it with keras");
  names("a.weights.h5", "\x89HDF\r\n\x1a\n" + zeros,
        "is an HDF5 file, as Keras writes models and weights (.h5)");
  names("a.weights.json",
        R"({"metadata": {}, "weight_map": {"/layers/dense/vars": ["a_00000.weights.h5"]}})",
        "is the index of weights that Keras has written in shards");
  // skops is not an archive of numpy, though arrays lie in it.
  names_archive({{"140.npy", "\x93NUMPY"}, {"schema.json", "{}"}},
                "is a model of skops; load it with skops.io.load");
  // TorchServe's archive.
  names_archive({{"m.pt", "PK"}, {"handler.py", ""}, {"MAR-INF/MANIFEST.json", "{}"}},
                R"(is a model archive of TorchServe (.mar) with "m.pt", "handler.py"; open the )"
                "weights in it as FILE//MEMBER");
  // an archive of torch.package: Records of a package that torch.package of torch 2.13 writes.
  names_archive({{"accentor/.data/extern_modules", "torch"},
                 {"accentor/model/model.pkl", "\x80\x02}."},
                 {"accentor/model.py", ""}},
                "is a package of torch.package, which has programs in it; if you trust them, load "
                "the model with torch.package.PackageImporter, and save its state_dict()");
  // a .nemo or .mar that is compressed with gzip, and any other such file: What Python's
  // gzip.compress(archive, mtime=0) gives for the tar archive of tar({{.name = "a"}}).
  names("a.nemo",
        "\037\213\010\000\000\000\000\000\002\003\113\144\240\075\060\000\002\063\023\023\254\342"
        "\120\200\046\156\154\146\150\306\240\140\100\007\267\061\224\026\227\044\026\061\030\320"
        "\305\256\121\060\012\106\301\050\030\104\000\000\157\054\160\214\000\006\000\000"s,
        "is a tar archive that is compressed with gzip, as an older .nemo of NeMo or a .mar");
  names("a.gz", "\x1f\x8b\x08\0\0\0\0\0\x02\xff" + zeros, "is compressed with gzip");
}

// MILBlob/Blob/StorageFormat.hpp of coremltools: a count, the version 2, and a blob from byte 64
// on.
TEST_CASE_FIXTURE(Fixture, "the weights of a program of Core ML") {
  const std::string header = "\x15\0\0\0\x02\0\0\0"s + std::string(56, '\0');
  names("weight.bin", header + "\xef\xbe\xad\xde\2\0\0\0" + zeros,
        "has the weights of a model of Core ML (weight.bin of an .mlpackage)");
  names("other.bin", header + "\xef\xbe\xad\xdf\2\0\0\0" + zeros, "is not a torch checkpoint");
}

// The names that TensorFlow's Saver and saved_model.save(), coremltools' save() and Xcode give.
TEST_CASE_FIXTURE(Fixture, "TensorFlow's variables, and folders of TensorFlow and Core ML") {
  names("model.ckpt.data-00000-of-00001", "\1\2\3" + zeros,
        "has variables of TensorFlow, whose names are in the .index beside it");
  const auto names_folder = [](const std::vector<std::string>& files, const char* kind) {
    const test::TemporaryFolder made;
    for (const std::string& file : files) {
      std::filesystem::create_directories((made.path() / file).parent_path());
      made.write(file, zeros);
    }
    CHECK_FAILS(Checkpoint::open(made.path()), ErrorCode::not_a_checkpoint, kind);
  };
  names_folder({"saved_model.pb", "variables/variables.index",
                "variables/variables.data-00000-of-00001", "assets/vocab.txt"},
               "is a SavedModel of TensorFlow; load it with tensorflow");
  names_folder(
      {"checkpoint", "model.ckpt.index", "model.ckpt.data-00000-of-00001"},
      "is a folder with a checkpoint of TensorFlow; load it with tf.train.load_checkpoint");
  names_folder({"Manifest.json", "Data/com.apple.CoreML/weights/weight.bin"},
               "is a model of Core ML (.mlpackage, .mlmodelc); load it with coremltools");
  names_folder({"coremldata.bin", "model.mil", "metadata.json", "weights/weight.bin"},
               "is a model of Core ML (.mlpackage, .mlmodelc)");
  names_folder({"notes.txt"}, "is a folder in which there is no checkpoint");
}

TEST_CASE_FIXTURE(Fixture, "weights beside a model of TensorFlow or Core ML are opened") {
  folder.write("saved_model.pb", zeros);
  folder.write("coremldata.bin", zeros);
  folder.write("model.safetensors", "\x02\0\0\0\0\0\0\0{}"s);
  CHECK(Checkpoint::open(folder.path()));
}

TEST_CASE_FIXTURE(Fixture, "OpenVINO: the network, and the weights beside it") {
  const std::string xml = "<?xml version=\"1.0\"?>\n<net name=\"Model0\" version=\"11\">\n</net>\n";
  names("a.xml", xml, "is a network of OpenVINO, whose weights are in the .bin beside it");
  names("a.bin", "\1\2\3" + zeros, "has the weights of the network of OpenVINO in the .xml beside");
  names("alone.bin", "\1\2\3" + zeros, "is not a torch checkpoint: it is no zip archive");
}

TEST_CASE_FIXTURE(Fixture, "a llamafile, which is a program with a zip archive behind it") {
  test::ArchiveBuilder builder;
  builder.add("model.gguf", "GGUF");
  names("a.llamafile", "MZqFpD='\n" + zeros + text_of(builder.finish()),
        "is a llamafile, or another archive with a GGUF model in it; open that as "
        "FILE//MEMBER: \"model.gguf\"");
}

TEST_CASE_FIXTURE(Fixture, "a .nemo is a tar, whatever archive its last member is") {
  test::ArchiveBuilder builder;
  builder.add("archive/data.pkl", "\x80\x02}.");
  names("a.nemo",
        test::tar({{.name = "./model_weights.ckpt", .content = text_of(builder.finish())}}),
        R"(is a tar archive with "model_weights.ckpt"; open what is a checkpoint in it as )"
        "FILE//MEMBER");
}

TEST_CASE_FIXTURE(Fixture, "a tar of torch of before 0.1.10, and one of many members") {
  const auto tar_of = [](std::initializer_list<const char*> members) {
    std::vector<test::TarEntry> entries;
    for (const char* name : members) entries.push_back({.name = name, .content = "x"});
    return test::tar(entries);
  };
  names("old.pt", tar_of({"sys_info", "pickle", "tensors", "storages"}),
        "is a tar archive of torch of before 0.1.10; load it with torch 0.4 to 1.x");
  names("a.tar", tar_of({"1", "2", "3", "4", "5", "6", "7", "8", "9"}),
        R"(is a tar archive with "1", "2", "3", "4", "5", "6", "7", "8", ...; open)");
}

// As joblib 0.9.4 and 1.5 (compress="lzma") write it, the second with and without its size.
TEST_CASE_FIXTURE(Fixture, "joblib's old zlib, and lzma without the container of xz") {
  names("a.pkl", "ZF0x31f            \x78\x9c" + zeros,
        "is compressed with zlib, as joblib did it before 0.10; load it with joblib");
  const std::string alone = "]\0\0\x80\0"s;
  names("a.lzma", alone + std::string(8, '\xff') + "\0\x40" + zeros, "is compressed with lzma;");
  names("b.lzma", alone + "\xda\3\0\0\0\0\0\0\0\x40"s + zeros, "is compressed with lzma;");
  for (const std::string& other :
       {"]\0\0\x81\0"s + std::string(8, '\xff') + "\0"s, alone + std::string(8, '\xff') + "\1",
        alone + std::string(7, '\xff') + "\0\0"s})
    names("numbers", other + zeros, "is not a torch checkpoint: it is no zip archive");
}
