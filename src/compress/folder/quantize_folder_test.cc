// Whole folders against those of the real tools (goldens/compress/quant/foreign), stopped jobs and damaged input.
#include "compress/folder/quantize_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "base/test_runtime.h"
#include "base/test_shared.h"
#include "compress/numbers/small_floats.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class QuantizeFolderTest : public RuntimeTest {
 protected:

  Result<FolderReport> Quantize(const std::string& in, const LinearScheme& scheme, const std::string& out,
                                const FolderRun& run = {}) {
    HONE_TRY(const auto checkpoint, Checkpoint::Open(in));
    HONE_TRY(const auto format, MakeLinearFormat(scheme));
    HONE_TRY(const FolderPlan plan, PlanFolder(*checkpoint, *format, {}, again_));
    return QuantizeFolder(*checkpoint, *format, scheme, plan, out, run, runtime_);
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool again_ = false;  // of quantised input
  static std::string Fresh(const std::string& name) {
    const std::string path = TestPath(name);
    fs::remove_all(path);
    return path;
  }

};

TEST_F(QuantizeFolderTest, FoldersHoldTheTensorsAndTheConfigurationOfTheTools) {
  HONE_NEED_SHARED(foreign, "goldens/compress/quant/foreign");
  const struct {
    const char* golden;
    LinearScheme scheme;
  } cases[] = {{"ct-pack-w4a16-asym", {"rtn", "compressed-tensors", 4, 32, false}},
               {"ct-nvfp4a16", {"nvfp4", "compressed-tensors"}},
               {"ct-fp8-channel-token", {"fp8", "compressed-tensors"}},
               {"ct-int8-channel-token", {"w8a8", "compressed-tensors"}},
               {"ct-mxfp4a16", {"mxfp4", "compressed-tensors"}},
               {"bnb-nf4-dq", {"nf4", "bitsandbytes"}},
               {"bnb-int8", {"llm-int8", "bitsandbytes"}},
               {"gptq-v1-b4-g32-sym", {"rtn", "gptq", 4, 32, true}},
               {"awq-gemm-g32-asym", {"rtn", "awq", 4, 32, false}}};
  for (const auto& c : cases) {
    const std::string out = Fresh(std::string("folder_") + c.golden);
    const auto report = Quantize(foreign + "/base", c.scheme, out);
    ASSERT_TRUE(report) << c.golden << ": " << report.error().message;
    EXPECT_GT(report->overall_error, 0);
    EXPECT_LT(report->overall_error, 0.2) << c.golden;
    const auto mine = SafetensorsFile::OpenFolder(out), theirs = SafetensorsFile::OpenFolder(foreign + "/" + c.golden);
    ASSERT_TRUE(mine && theirs);
    EXPECT_EQ((*mine)->tensors().size(), (*theirs)->tensors().size()) << c.golden;
    const bool codes_are_ours =
        std::string(c.golden).starts_with("ct-");  // the others searched, or sum in another order
    for (const NamedTensor& tensor : (*theirs)->tensors()) {
      const NamedTensor* got = (*mine)->FindTensor(tensor.name);
      ASSERT_NE(got, nullptr) << c.golden << " " << tensor.name;
      if (tensor.name.find("quant_state") != std::string::npos) continue;
      EXPECT_TRUE(got->view.shape == tensor.view.shape) << c.golden << " " << tensor.name;
      if (codes_are_ours) {
        EXPECT_EQ(std::memcmp(got->view.data, tensor.view.data, got->view.bytes()), 0)
            << c.golden << " " << tensor.name;
      }
    }
    const auto config = JsonConfig::Read(out + "/config.json"),
               wanted = JsonConfig::Read(foreign + "/" + c.golden + "/config.json");
    ASSERT_TRUE(config && wanted);
    const auto quantization = config->Object("quantization_config"), golden = wanted->Object("quantization_config");
    ASSERT_TRUE(quantization && golden);
    for (const char* key : {"quant_method", "format", "checkpoint_format", "version", "bnb_4bit_quant_type"}) {
      if (golden->Has(key)) {
        EXPECT_EQ(*quantization->String(key), *golden->String(key)) << c.golden << " " << key;
      }
    }
    for (const char* key : {"bits", "group_size"}) {
      if (golden->Has(key)) {
        EXPECT_EQ(*quantization->Int(key), *golden->Int(key)) << c.golden << " " << key;
      }
    }
    if (golden->Has("config_groups")) {
      const auto group = quantization->Object("config_groups")->Object("group_0"),
                 golden_group = golden->Object("config_groups")->Object("group_0");
      ASSERT_TRUE(group && golden_group);
      EXPECT_EQ(group->Dump(), golden_group->Dump()) << c.golden;
    }
    EXPECT_EQ(fs::exists(out + "/quantize_config.json"), std::string(c.golden).starts_with("gptq"));
    EXPECT_FALSE(fs::exists(out + ".partial"));
    // It is quantised now.
    EXPECT_NE(Quantize(out, c.scheme, Fresh("folder_twice")).error().message.find("quantised already"),
              std::string::npos);
  }
}

TEST_F(QuantizeFolderTest, AStoppedJobGoesOnToTheSameBytes) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const LinearScheme scheme{"rtn", "gptq", 4, 32, true};
  const std::string whole = Fresh("folder_whole"), path = Fresh("folder_stopped");
  ASSERT_TRUE(Quantize(base, scheme, whole));
  for (const int stop_after : {0, 5, 14}) {  // 14: all matrices are there, the file has no name yet
    fs::remove_all(path);
    int calls = 0;
    const auto stopped = Quantize(base, scheme, path,
                                  {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < stop_after; }});
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(fs::exists(path));
    const auto report = Quantize(base, scheme, path, {.resume = true});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->resumed_tensors, static_cast<size_t>(stop_after));
    EXPECT_TRUE(Bytes(path + "/model.safetensors") == Bytes(whole + "/model.safetensors"));
  }
}

// A quantised folder is read as what it means, also where a job goes on; with the bytes of what it means.
TEST_F(QuantizeFolderTest, QuantisedInputIsReadAsWhatItMeans) {
  HONE_NEED_SHARED(foreign, "goldens/compress/quant/foreign");
  again_ = true;
  const LinearScheme scheme{"rtn", "compressed-tensors", 4, 32, true};
  for (const char* name : {"gptq-v2-b4-g32-asym-act", "awq-gemm-g32-asym", "bnb-nf4-dq", "ct-fp8-block"}) {
    SCOPED_TRACE(name);
    const std::string in = foreign + "/" + name, whole = Fresh("again_whole"), path = Fresh("again_stopped");
    const auto report = Quantize(in, scheme, whole);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GT(report->overall_error, 0.01);
    EXPECT_LT(report->overall_error, 0.2);
    int calls = 0;
    ASSERT_FALSE(Quantize(in, scheme, path, {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < 6; }}));
    const auto resumed = Quantize(in, scheme, path, {.resume = true});
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_EQ(resumed->resumed_tensors, 6u);
    EXPECT_TRUE(Bytes(path + "/model.safetensors") == Bytes(whole + "/model.safetensors"));
    const auto written = SafetensorsFile::OpenFolder(whole);
    ASSERT_TRUE(written);
    for (const NamedTensor& tensor : (*written)->tensors()) {
      const bool part = tensor.name.ends_with(".weight_packed") || tensor.name.ends_with(".weight_scale") || tensor.name.ends_with(".weight_shape");
      EXPECT_TRUE(part || tensor.view.type == DType::kF16 || tensor.view.type == DType::kBF16) << tensor.name;
    }
    const auto checkpoint = Checkpoint::Open(in);
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ((*written)->FindTensor("model.layers.0.mlp.up_proj.weight_scale")->view.type,
              (*checkpoint)->FindTensor("model.embed_tokens.weight")->view.type);
  }
}

// What is quantised in the input and not in the result is written as what it means: an output that another tool has quantised too.
TEST_F(QuantizeFolderTest, AQuantisedOutputBecomesPlain) {
  HONE_NEED_SHARED(models, "goldens/models");
  const std::string first = Fresh("output_first"), second = Fresh("output_second"), third = Fresh("output_third");
  ASSERT_TRUE(Quantize(models + "/llama", {"fp8", "fp8"}, first));
  fs::copy(first, second, fs::copy_options::recursive);
  const auto from = SafetensorsFile::OpenFolder(first);
  ASSERT_TRUE(from);
  const NamedTensor* head = (*from)->FindTensor("lm_head.weight");
  ASSERT_NE(head, nullptr);
  const Shape shape = head->view.shape;
  const auto code = [](int64_t i) { return static_cast<uint8_t>(i * 7 % 0x7f); };
  std::vector<TensorInfo> infos;
  std::map<std::string, std::vector<std::byte>> made;
  for (const NamedTensor& tensor : (*from)->tensors()) {
    if (&tensor != head) infos.push_back({tensor.name, tensor.view.type, tensor.view.shape});
  }
  infos.push_back({"lm_head.weight", DType::kF8_E4M3, shape});
  infos.push_back({"lm_head.weight_scale_inv", DType::kF32, Shape{(shape[0] + 127) / 128, (shape[1] + 127) / 128}});
  for (int64_t i = 0; i < shape.elements(); ++i) made["lm_head.weight"].push_back(std::byte{code(i)});
  for (int64_t i = 0; i < infos.back().shape.elements(); ++i) {
    made[infos.back().name].resize(4 * i + 4);
    StoreAs(DType::kF32, 0.25f, &made[infos.back().name][4 * i]);
  }
  fs::remove(second + "/model.safetensors");
  const auto writer = SafetensorsWriter::Create(second + "/model.safetensors", infos, {{"format", "pt"}});
  ASSERT_TRUE(writer) << writer.error().message;
  for (const TensorInfo& info : (*writer)->order()) {
    const auto mine = made.find(info.name);
    const NamedTensor* kept = (*from)->FindTensor(info.name);
    ASSERT_TRUE((*writer)->Append(mine != made.end() ? std::span<const std::byte>(mine->second) : std::span(kept->view.data, kept->view.bytes())));
  }
  ASSERT_TRUE((*writer)->Commit());
  again_ = true;
  const auto report = Quantize(second, {"rtn", "compressed-tensors", 4, 8, true}, third);
  ASSERT_TRUE(report) << report.error().message;
  const auto written = SafetensorsFile::OpenFolder(third);
  ASSERT_TRUE(written);
  EXPECT_EQ((*written)->FindTensor("lm_head.weight_scale_inv"), nullptr);
  const NamedTensor* plain = (*written)->FindTensor("lm_head.weight");
  ASSERT_NE(plain, nullptr);
  ASSERT_EQ(plain->view.shape, shape);
  const size_t width = BytesFor(plain->view.type, 1);
  for (int64_t i = 0; i < shape.elements(); ++i)
    ASSERT_EQ(LoadAs(plain->view.type, plain->view.data + i * width), 0.25f * DecodeSmallFloat(kE4M3, code(i))) << i;
}

// What a report says of matrices that it compared while they were made, and what the next run says when it decodes the file.
TEST_F(QuantizeFolderTest, AReportIsThatOfWhatTheFileHolds) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const LinearScheme schemes[] = {{"nf4", "bitsandbytes"}, {"fp4", "bitsandbytes"}, {"llm-int8", "bitsandbytes"},
                                  {"rtn", "gptq", 4, 32, true}, {"rtn", "awq", 4, 32, false}, {"nvfp4", "compressed-tensors"},
                                  {"mxfp8", "compressed-tensors"}, {"fp8", "fp8"}, {.method = "fp8", .format = "fp8", .e5m2 = true}};
  const std::string whole = Fresh("reported_whole"), path = Fresh("reported");
  for (const LinearScheme& scheme : schemes) {
    fs::remove_all(whole), fs::remove_all(path);
    const auto fresh = Quantize(base, scheme, whole);
    int calls = 0;
    ASSERT_FALSE(Quantize(base, scheme, path, {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < 14; }}));
    const auto read = Quantize(base, scheme, path, {.resume = true});
    ASSERT_TRUE(fresh && read) << scheme.method;
    ASSERT_EQ(read->resumed_tensors, 14u);
    EXPECT_EQ(fresh->max_error, read->max_error) << scheme.method;
    for (size_t i = 0; i < 14; ++i) {
      EXPECT_GT(read->relative_error[i], 0);
      EXPECT_NEAR(fresh->relative_error[i], read->relative_error[i], 1e-6 * read->relative_error[i]) << scheme.method;
      EXPECT_NEAR(fresh->power[i], read->power[i], 1e-6 * read->power[i]) << scheme.method;
    }
    EXPECT_NEAR(fresh->overall_error, read->overall_error, 1e-6 * read->overall_error) << scheme.method;
    EXPECT_TRUE(Bytes(path + "/model.safetensors") == Bytes(whole + "/model.safetensors"));
  }
}

// The file moves into the folder that gets the name: killed before, between and after, and with other things in the way.
TEST_F(QuantizeFolderTest, AJobKilledWhileItsFolderGetsItsNameGoesOn) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const LinearScheme scheme{"rtn", "compressed-tensors", 4, 32, true};
  const std::string whole = Fresh("named_whole"), path = Fresh("named"), unverified = path + ".unverified";
  ASSERT_TRUE(Quantize(base, scheme, whole));
  const std::string weights = Bytes(whole + "/model.safetensors");
  int calls = 0;
  ASSERT_FALSE(Quantize(base, scheme, path, {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < 14; }}));
  const std::string log = Bytes(path + ".partial.log");
  EXPECT_EQ(Bytes(path + ".partial").size(), weights.size());
  const auto go_on = [&](size_t resumed) {
    const auto report = Quantize(base, scheme, path, {.resume = true, .overwrite = true});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->resumed_tensors, resumed);
    EXPECT_TRUE(Bytes(path + "/model.safetensors") == weights);
    for (const std::string& left : {path + ".partial", path + ".partial.log", unverified}) EXPECT_FALSE(fs::exists(left)) << left;
  };
  const auto put = [](const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; };
  // Moved, its folder not yet named.
  fs::create_directories(unverified);
  put(unverified + "/config.json", "{}");
  fs::rename(path + ".partial", unverified + "/model.safetensors");
  go_on(14);
  // Named, the log still there: all is made again, over what is there.
  put(path + ".partial.log", log);
  go_on(0);
  // Leftovers of another job under the folder's other name.
  put(path + ".partial.log", log);
  put(path + ".partial", weights);
  fs::create_directories(unverified);
  put(unverified + "/model.safetensors", "something else");
  go_on(14);
  // Without --force a folder that has the name by now stays, and so does the work.
  put(path + ".partial.log", log);
  put(path + ".partial", weights);
  EXPECT_FALSE(Quantize(base, scheme, path, {.resume = true}));
  EXPECT_TRUE(fs::exists(path + ".partial"));
  go_on(14);
}

// Threads keep some rows of what they read last: those of one model are never taken for another's.
TEST_F(QuantizeFolderTest, JobsOfOneProcessDoNotMix) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const LinearScheme scheme{"rtn", "compressed-tensors", 4, 32, true};
  const std::string other = Fresh("mixed_other");
  fs::copy(base, other, fs::copy_options::recursive);
  fs::permissions(other + "/model.safetensors", fs::perms::owner_write, fs::perm_options::add);
  std::string weights = Bytes(other + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof(header));
  // Zeros, then what is a NaN in every type: a job that ends with its first matrix leaves its rows to the next one's first.
  for (const char fill : {'\0', '\xff'}) {
    std::fill(weights.begin() + static_cast<int64_t>(8 + header), weights.end(), fill);
    std::ofstream(other + "/model.safetensors", std::ios::binary) << weights;
    for (int turn = 0; turn < 3; ++turn) {
      const auto second = Quantize(other, scheme, Fresh("mixed_out_other")), first = Quantize(base, scheme, Fresh("mixed_out"));
      ASSERT_TRUE(first) << first.error().message;
      EXPECT_GT(first->overall_error, 0);
      ASSERT_EQ(static_cast<bool>(second), fill == '\0');
      if (!second) continue;
      for (const double power : second->power) EXPECT_EQ(power, 0) << "another model's rows";
    }
  }
}

// Written to before the last matrix is read: no result, and nothing that --resume could go on with.
TEST_F(QuantizeFolderTest, AModelThatChangesWhileItIsReadGivesNoResult) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const LinearScheme scheme{"rtn", "compressed-tensors", 4, 32, true};
  const std::string model = Fresh("changing"), weights = model + "/model.safetensors", out = Fresh("changing_out"), whole = Fresh("changing_whole");
  fs::copy(base, model, fs::copy_options::recursive);
  fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
  ASSERT_TRUE(Quantize(model, scheme, whole));
  const auto when_half = [&](const std::function<void()>& change) {
    int calls = 0;
    return Quantize(model, scheme, out, {.progress = [&, change](const char*, uint64_t, uint64_t) {
                      if (calls++ == 7) change();
                      return true;
                    }});
  };
  const std::string bytes = Bytes(weights);
  const auto changed = when_half([&] {
    std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(bytes.size() - 2));
    file.write("ab", 2);
  });
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(changed.error().message.find("changed while it was read"), std::string::npos) << changed.error().message;
  for (const char* end : {"", ".partial", ".partial.log", ".unverified"}) EXPECT_FALSE(fs::exists(out + end)) << end;
  // Another file under its name is another model; the one that was opened is whole.
  std::ofstream(weights, std::ios::binary) << bytes;
  const auto replaced = when_half([&] {
    std::ofstream(weights + ".new", std::ios::binary) << bytes.substr(0, 1000);
    fs::rename(weights + ".new", weights);
  });
  ASSERT_TRUE(replaced) << replaced.error().message;
  EXPECT_TRUE(Bytes(out + "/model.safetensors") == Bytes(whole + "/model.safetensors"));
}

// NaN and infinity are named also in what is only copied.
TEST_F(QuantizeFolderTest, DamagedTensorsThatAreKeptAreNamed) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const std::string model = Fresh("kept_damage"), weights = model + "/model.safetensors", out = Fresh("kept_damage_out");
  fs::copy(base, model, fs::copy_options::recursive);
  fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
  const std::string whole = Bytes(weights);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof(header));
  const struct {
    const char *name, *said;
    uint16_t bits;
    size_t at;
  } cases[] = {{"model.embed_tokens.weight", "row 1, column 3 is nan", 0x7e00, 128 + 3},
               {"model.norm.weight", "row 0, column 127 is inf", 0x7c00, 127},
               {"model.layers.1.input_layernorm.weight", "row 0, column 0 is -inf", 0xfc00, 0}};
  for (const auto& c : cases) {
    const size_t named = whole.find("\"" + std::string(c.name) + "\""), offsets = whole.find("data_offsets\":[", named);
    ASSERT_LT(offsets, header);
    std::string damaged = whole;
    std::memcpy(&damaged[8 + header + std::strtoull(whole.c_str() + offsets + 15, nullptr, 10) + 2 * c.at], &c.bits, sizeof(c.bits));
    std::ofstream(weights, std::ios::binary) << damaged;
    for (const char* method : {"rtn", "fp8"}) {
      const auto report = Quantize(model, {method, "compressed-tensors", 4, 32, true}, out);
      ASSERT_FALSE(report) << c.name;
      EXPECT_NE(report.error().message.find(std::string(c.name) + ": " + c.said), std::string::npos) << report.error().message;
      for (const char* end : {"", ".partial", ".partial.log"}) EXPECT_FALSE(fs::exists(out + end)) << end;
    }
  }
}

// One weight of many that F16 scales cannot reach: refused by name, whatever the format, and nothing is left.
TEST_F(QuantizeFolderTest, WeightsBeyondTheScalesAreRefused) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const std::string model = Fresh("beyond"), weights = model + "/model.safetensors", out = Fresh("beyond_out");
  fs::copy(base, model, fs::copy_options::recursive);
  fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
  // The same halves read as BF16: all are small numbers.
  const std::string old = Bytes(weights);
  uint64_t length = 0;
  std::memcpy(&length, old.data(), sizeof(length));
  const size_t data = 8 + length;
  std::string header = old.substr(8, length);
  for (size_t at = 0; (at = header.find("\"F16\"", at)) != std::string::npos; at += 6) header.insert(at + 1, "B");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header + old.substr(data);
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  const size_t entry = header.find("\"" + name + "\""), offsets = header.find("\"data_offsets\"", entry);
  ASSERT_NE(entry, std::string::npos);
  const size_t weight = 8 + length + std::stoull(header.substr(header.find('[', offsets) + 1)) + 2 * 77;
  const LinearScheme schemes[] = {{"rtn", "gptq", 4, 32, true}, {"rtn", "gptq", 8, 32, false}, {"rtn", "awq", 4, 32, false},
                                  {"hqq", "hqq", 4, 64, false}, {"hqq", "hqq", 3, 64, false}};
  for (const LinearScheme& scheme : schemes) {
    for (const uint16_t huge : {0x4e80, 0xce80, 0x7f00, 0xff00}) {  // 2^30 and 2^127, both signs
      std::memcpy(&bytes[weight], &huge, sizeof(huge));
      std::ofstream(weights, std::ios::binary) << bytes;
      const auto refused = Quantize(model, scheme, out);
      ASSERT_FALSE(refused) << scheme.format << " " << scheme.bits << " " << huge;
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput);
      EXPECT_NE(refused.error().message.find(name + " has weights too large"), std::string::npos) << refused.error().message;
      for (const char* end : {"", ".partial", ".partial.log", ".unverified"}) EXPECT_FALSE(fs::exists(out + end)) << end;
    }
  }
}

TEST_F(QuantizeFolderTest, WhatCannotWorkIsRefusedBeforeAnyWork) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const std::string out = Fresh("folder_refused");
  const auto refused = Quantize(base, {"rtn", "compressed-tensors", 4, 128, true}, out);  // ffn is 192 wide
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layers.1.mlp.down_proj.weight [128, 192]"), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(fs::exists(out + ".partial"));
}

}  // namespace
}  // namespace hone
