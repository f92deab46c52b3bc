// Whole files against llama.cpp's quantizer (data/quant), and what happens to bad input and killed jobs.
#include "compress/gguf/quantize_gguf.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "base/test_runtime.h"
#include "base/test_shared.h"
#include "compress/work_file.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace hone {
namespace {

class QuantizeGguf : public RuntimeTest {
 protected:

  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::unique_ptr<TensorSource> Open(const std::string& path) {
    auto checkpoint = Checkpoint::Open(path);
    HONE_CHECK(checkpoint.has_value());
    return SourceFromGguf(*checkpoint);
  }
  static QuantizeOptions Options(const char* type, bool pure = true) {
    return {.file_type = *FindGgufFileType(type), .pure = pure, .imatrix_path = "imatrix.gguf"};
  }
  // The file's bytes, or the error's message.
  std::string Quantize(const TensorSource& source, const std::string& path, const QuantizeOptions& options,
                       const QuantizeRun& run = {}) {
    const auto plan = PlanQuantize(source, options, runtime_);
    if (!plan) return plan.error().message;
    report_ = QuantizeToGguf(source, *plan, path, options, run, runtime_);
    return report_ ? Bytes(path) : report_.error().message;
  }
  // A GGUF model of a few random F32 matrices; `spoil` may change them.
  std::string WriteModel(const std::string& name, const std::function<void(std::vector<Tensor>&)>& spoil = nullptr) {
    std::vector<Tensor> tensors;
    std::vector<NamedTensor> named;
    Rng rng(5);
    for (int i = 0; i < 4; ++i) {
      tensors.emplace_back(DType::kF32, Shape{96, 256});
      for (int64_t j = 0; j < 96 * 256; ++j) tensors.back().as<float>()[j] = static_cast<float>(rng.Uniform() - 0.5);
    }
    if (spoil) spoil(tensors);
    for (int i = 0; i < 4; ++i) named.push_back({"blk." + std::to_string(i) + ".ffn_up.weight", tensors[i].view()});
    const std::string path = TestPath(name);
    HONE_CHECK(WriteGguf(path, {.metadata = {{"general.architecture", GgufValue::String("llama")},
                                             {"llama.block_count", GgufValue::U32(4)}},
                                .tensors = named})
                   .has_value());
    return path;
  }

  Result<QuantizeReport> report_{QuantizeReport{}};
};

TEST_F(QuantizeGguf, WholeFilesAreThoseOfLlamaQuantize) {
  HONE_NEED_SHARED(folder, "data/quant");
  const auto source = Open(folder + "/base.gguf");
  const auto imatrix = ReadImatrix(folder + "/imatrix.gguf");
  ASSERT_TRUE(imatrix);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool pure = name.starts_with("pure-"), with_importance = name.starts_with("imat-");
    if (!pure && !with_importance) continue;
    QuantizeOptions options = Options(name.substr(5, name.size() - 10).c_str());
    if (with_importance) options.imatrix = &*imatrix;
    EXPECT_TRUE(Quantize(*source, TestPath("out.gguf"), options) == Bytes(entry.path())) << name;
    ++files;
  }
  EXPECT_EQ(files, 25);
}

// Experts lie in one tensor, each with an importance of its own: the bytes are those of each quantised by itself.
TEST_F(QuantizeGguf, StackedMatricesAreThoseOfEachApart) {
  constexpr int64_t kExperts = 3, kRows = 7;
  for (const int64_t columns : {256, 96, 40}) {
    Rng rng(static_cast<uint64_t>(columns));
    Tensor stacked(DType::kF32, Shape{kExperts, kRows, columns});
    for (int64_t i = 0; i < stacked.view().shape.elements(); ++i) stacked.as<float>()[i] = static_cast<float>(rng.Uniform() - 0.5);
    std::vector<float> squares(static_cast<size_t>(kExperts * columns));
    for (float& s : squares) s = static_cast<float>(0.1 + 10 * rng.Uniform());
    const std::string name = "blk.0.ffn_up_exps.weight";
    const auto write = [&](const std::string& path, const TensorView& view) {
      HONE_CHECK(WriteGguf(path, {.metadata = {{"general.architecture", GgufValue::String("llama")}, {"llama.block_count", GgufValue::U32(1)}},
                                  .tensors = {{name, view}}}).has_value());
    };
    for (const char* type : {"Q4_0", "Q5_1", "Q2_K", "Q4_K_S", "IQ4_XS"}) {
      for (const bool with_importance : {false, true}) {
        if (std::string(type) == "Q2_K" && !with_importance) continue;
        Imatrix imatrix;
        imatrix.entries[name] = {columns, squares, std::vector<float>(kExperts, 1)};
        QuantizeOptions options = Options(type);
        if (with_importance) options.imatrix = &imatrix;
        write(TestPath("stacked.gguf"), stacked.view());
        Quantize(*Open(TestPath("stacked.gguf")), TestPath("stacked_out.gguf"), options);
        ASSERT_TRUE(report_) << type << " " << columns << ": " << report_.error().message;
        const auto whole = GgufFile::Open(TestPath("stacked_out.gguf"));
        ASSERT_TRUE(whole);
        const TensorView all = (*whole)->FindTensor(name)->view;
        for (int64_t e = 0; e < kExperts; ++e) {
          TensorView one = stacked.view();
          one.shape = Shape{kRows, columns};
          one.data += e * kRows * columns * 4;
          const auto first = squares.begin() + e * columns;
          imatrix.entries[name] = {columns, std::vector<float>(first, first + columns), {1}};
          write(TestPath("apart.gguf"), one);
          Quantize(*Open(TestPath("apart.gguf")), TestPath("apart_out.gguf"), options);
          ASSERT_TRUE(report_) << type << " " << columns << ": " << report_.error().message;
          const auto apart = GgufFile::Open(TestPath("apart_out.gguf"));
          ASSERT_TRUE(apart);
          const TensorView part = (*apart)->FindTensor(name)->view;
          ASSERT_EQ(part.type, all.type);
          ASSERT_EQ(part.bytes() * kExperts, all.bytes());
          EXPECT_EQ(std::memcmp(part.data, all.data + e * static_cast<int64_t>(part.bytes()), part.bytes()), 0) << type << " " << columns << " expert " << e;
        }
      }
    }
  }
}

TEST_F(QuantizeGguf, AStoppedJobGoesOnToTheSameBytes) {
  const auto source = Open(WriteModel("resume_in.gguf"));
  const std::string whole = Quantize(*source, TestPath("whole.gguf"), Options("Q4_K_S"));
  ASSERT_TRUE(report_) << whole;
  const std::string path = TestPath("stopped.gguf");
  for (int stop_after = 0; stop_after < 9; ++stop_after) {  // in the middle of quantising and of writing
    std::filesystem::remove(path);
    int calls = 0;
    const std::string stopped =
        Quantize(*source, path, Options("Q4_K_S"),
                 {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < stop_after; }});
    ASSERT_FALSE(report_);
    EXPECT_EQ(report_.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(Quantize(*source, path, Options("Q4_K_S"), {.resume = true}) == whole) << stop_after;
    ASSERT_TRUE(report_);
    EXPECT_EQ(report_->resumed_tensors, static_cast<size_t>(std::min(stop_after, 4)));
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
    EXPECT_FALSE(std::filesystem::exists(path + ".unverified"));
  }
}

TEST_F(QuantizeGguf, WhatAKilledProcessLeavesHalfWrittenIsDoneAgain) {
  const auto source = Open(WriteModel("torn_in.gguf"));
  const std::string whole = Quantize(*source, TestPath("torn_whole.gguf"), Options("Q6_K"));
  const std::string path = TestPath("torn.gguf");
  int calls = 0;
  Quantize(*source, path, Options("Q6_K"), {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < 3; }});
  const std::string work = Bytes(path + ".partial"), log = Bytes(path + ".partial.log");
  const auto put = [](const std::string& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  };
  put(path + ".partial", work + "half a piece");
  put(path + ".partial.log", log + "123");
  EXPECT_TRUE(Quantize(*source, path, Options("Q6_K"), {.resume = true}) == whole);
  std::string damaged = work;
  damaged[damaged.size() / 2] ^= 1;  // in the second piece
  put(path + ".partial", damaged);
  put(path + ".partial.log", log);
  EXPECT_TRUE(Quantize(*source, path, Options("Q6_K"), {.resume = true}) == whole);
  EXPECT_EQ(report_->resumed_tensors, 1u);
  // Another type is another job.
  put(path + ".partial", work);
  put(path + ".partial.log", log);
  EXPECT_NE(Quantize(*source, path, Options("Q5_K_S"), {.resume = true}).find("another job"), std::string::npos);
  EXPECT_TRUE(Quantize(*source, path, Options("Q6_K")) == whole);  // without --resume the old work is dropped
  EXPECT_EQ(report_->resumed_tensors, 0u);
}

TEST_F(QuantizeGguf, DamagedWeightsAreNamed) {
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    const auto source =
        Open(WriteModel("nan.gguf", [&](std::vector<Tensor>& t) { t[2].as<float>()[5 * 256 + 17] = bad; }));
    const std::string message = Quantize(*source, TestPath("nan_out.gguf"), Options("Q8_0"));
    EXPECT_NE(message.find("blk.2.ffn_up.weight: row 5, column 17"), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(TestPath("nan_out.gguf")));
    EXPECT_FALSE(std::filesystem::exists(TestPath("nan_out.gguf.partial")));
  }
  // So are those of tensors that stay as they are.
  Tensor norm(DType::kF32, Shape{5}), matrix(DType::kBF16, Shape{2, 256}), kept(DType::kF16, Shape{3, 7});
  for (const Tensor* tensor : {&norm, &kept}) {
    for (const bool damaged : {false, true}) {
      const std::string path = TestPath("kept.gguf");
      if (damaged && tensor == &norm) norm.as<float>()[4] = -HUGE_VALF;
      if (damaged && tensor == &kept) kept.as<uint16_t>()[2 * 7 + 6] = 0x7e01;
      HONE_CHECK(WriteGguf(path, {.metadata = {{"general.architecture", GgufValue::String("llama")}},
                                  .tensors = {{"norm.weight", norm.view()}, {"x.weight", matrix.view()}, {"kept", kept.view()}}})
                     .has_value());
      const std::string message = Quantize(*Open(path), TestPath("kept_out.gguf"), Options("Q8_0"));
      ASSERT_EQ(bool{report_}, !damaged) << message;
      const char* name = tensor == &norm ? "norm.weight: row 0, column 4 is -inf" : "kept: row 2, column 6 is nan";
      if (damaged) {
        EXPECT_NE(message.find(name), std::string::npos) << message;
      }
    }
    norm.as<float>()[4] = 0;
  }
  const auto huge = Open(WriteModel("huge.gguf", [&](std::vector<Tensor>& t) { t[1].as<float>()[9 * 256] = 1e30f; }));
  const std::string message = Quantize(*huge, TestPath("huge_out.gguf"), Options("Q4_0"));
  EXPECT_NE(message.find("blk.1.ffn_up.weight: row 9"), std::string::npos) << message;
  for (const char* left : {"huge_out.gguf", "huge_out.gguf.partial", "huge_out.gguf.partial.log", "huge_out.gguf.unverified"})
    EXPECT_FALSE(std::filesystem::exists(TestPath(left))) << left;  // no resuming helps
}

TEST(CheckDisk, CountsWhatIsThere) {
  EXPECT_TRUE(CheckDisk(0, TestPath("disk.gguf"), 0));
  constexpr uint64_t kMuch = uint64_t{1} << 60;
  const auto refused = CheckDisk(kMuch, TestPath("disk.gguf"), 0);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("this needs 1099511627776 MiB"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(CheckDisk(kMuch, TestPath("disk.gguf"), kMuch));
  EXPECT_FALSE(CheckDisk(0, TestPath("no_such_folder") + "/disk.gguf", 0));
}

TEST_F(QuantizeGguf, QuantisedInputIsRefusedUnlessAllowed) {
  const auto source = Open(WriteModel("twice_in.gguf"));
  const std::string once = TestPath("once.gguf"), twice = TestPath("twice.gguf");
  Quantize(*source, once, Options("Q8_0"));
  ASSERT_TRUE(report_);
  const auto quantised = Open(once);
  EXPECT_NE(Quantize(*quantised, twice, Options("Q4_0")).find("--allow-requantize"), std::string::npos);
  EXPECT_NE(Quantize(*quantised, twice, Options("Q8_0")).find("nothing to do"), std::string::npos);
  QuantizeOptions allowed = Options("Q4_0");
  allowed.allow_requantize = true;
  Quantize(*quantised, twice, allowed);
  EXPECT_TRUE(report_);
}

TEST_F(QuantizeGguf, AnImatrixOfAnotherModelIsRefused) {
  const auto source = Open(WriteModel("other_in.gguf"));
  Imatrix imatrix;
  imatrix.entries["blk.1.ffn_up.weight"] = {128, std::vector<float>(128, 1), {1}};
  QuantizeOptions options = Options("Q4_K_S");
  options.imatrix = &imatrix;
  EXPECT_NE(Quantize(*source, TestPath("other.gguf"), options).find("another model"), std::string::npos);
  imatrix.entries["blk.1.ffn_up.weight"] = {256, std::vector<float>(256, 1), {1}};
  const auto plan = PlanQuantize(*source, options, runtime_);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->warnings.size(), 1u);
  EXPECT_NE(plan->warnings[0].find("3 matrices"), std::string::npos);
  EXPECT_NE(Quantize(*source, TestPath("other.gguf"), Options("Q2_K_S", false)).find("needs an importance matrix"),
            std::string::npos);
}

TEST_F(QuantizeGguf, ThePlanIsWhatIsWritten) {
  const auto source = Open(WriteModel("plan_in.gguf"));
  const auto plan = PlanQuantize(*source, Options("Q4_0"), runtime_);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->bytes, 4u * 96 * 256 / 32 * 18);
  EXPECT_DOUBLE_EQ(plan->bits_per_weight, 4.5);
  EXPECT_GT(plan->seconds, 0);
  Quantize(*source, TestPath("plan.gguf"), Options("Q4_0"));
  ASSERT_TRUE(report_);
  EXPECT_EQ(report_->tensors.size(), 4u);
  EXPECT_GT(report_->relative_error, 0.02);
  EXPECT_LT(report_->relative_error, 0.1);
}

// Written to while it is read, before, between and after the last weight: no result, and nothing that --resume could go on with.
TEST_F(QuantizeGguf, AModelThatChangesWhileItIsReadGivesNoResult) {
  const std::string path = WriteModel("changing.gguf"), out = TestPath("changing_out.gguf"), whole = Quantize(*Open(path), out, Options("Q4_0"));
  ASSERT_TRUE(report_) << whole;
  std::filesystem::remove(out);
  const std::string bytes = Bytes(path);
  const auto when = [&](const std::string& stage, const std::function<void()>& change) {
    bool done = false;
    // Clocks of files tick slowly: written long ago.
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    return Quantize(*Open(path), out, Options("Q4_0"), {.progress = [&](const char* now, uint64_t, uint64_t) {
                      if (!done && now == stage) done = true, change();
                      return true;
                    }});
  };
  for (const char* stage : {"quantising", "writing", "verifying"}) {
    const std::string message = when(stage, [&] {
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(bytes.size() - 2));
      file.write("ab", 2);
    });
    ASSERT_FALSE(report_) << stage;
    EXPECT_EQ(report_.error().code, ErrorCode::kInvalidInput) << stage << " " << message;
    EXPECT_NE(message.find("changed while it was read"), std::string::npos) << stage << " " << message;
    for (const char* end : {"", ".partial", ".partial.log", ".unverified"}) EXPECT_FALSE(std::filesystem::exists(out + end)) << stage << end;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Another file under its name is another model; the one that was opened is whole.
  const std::string replaced = when("quantising", [&] {
    std::ofstream(path + ".new", std::ios::binary) << bytes.substr(0, 1000);
    std::filesystem::rename(path + ".new", path);
  });
  ASSERT_TRUE(report_) << replaced;
  EXPECT_TRUE(replaced == whole);
}

}  // namespace
}  // namespace hone
