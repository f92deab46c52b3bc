// AWQ and SmoothQuant against the authors' code (goldens/compress/quant/awq, smooth): whole small models made of the
// golden weights go through calibration, search, folding and packing as the command does it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "compress/folder/quantize_folder.h"
#include "compress/folder/rounded_codes.h"
#include "compress/layerwise/layer_stream.h"
#include "compress/numbers/uniform.h"
#include "compress/scale/awq.h"
#include "compress/scale/awq_pieces.h"
#include "compress/test_golden.h"

namespace hone {
namespace {

const char* const kMatrices[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                 "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

std::string LlamaConfig(int width, int ffn, int heads, int kv_heads, int vocab) {
  return "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", \"head_dim\": "
         "32, \"hidden_size\": " + std::to_string(width) + ", \"intermediate_size\": " + std::to_string(ffn) +
         ", \"max_position_embeddings\": 64, \"num_attention_heads\": " + std::to_string(heads) +
         ", \"num_hidden_layers\": 1, \"num_key_value_heads\": " + std::to_string(kv_heads) +
         ", \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"vocab_size\": " +
         std::to_string(vocab) + ", \"bos_token_id\": 0, \"eos_token_id\": 1}";
}

class ScaleTest : public testing::Test {
 protected:
  // AMX would round inputs to BF16; the authors' arithmetic is F32.
  ScaleTest() { runtime_ = {&cpu_, std::min(cpu_.best_isa(), Isa::kVnni), &threads_, nullptr, &clock_}; }

  // One layer whose embedding holds the golden's inputs, a token each: the text 0, 1, 2 ... puts them through.
  static std::string AwqModel(const Golden& block, const std::string& name) {
    const TensorView& x = block.View("x");
    std::vector<NamedTensor> tensors = {
        {"model.embed_tokens.weight", {x.type, Shape{320, 64}, x.data}},
        {"model.norm.weight", block.View("input_layernorm.weight")}};
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      tensors.push_back({std::string("model.layers.0.") + norm + ".weight", block.View(norm + std::string(".weight"))});
    for (const std::string matrix : kMatrices)
      tensors.push_back({"model.layers.0." + matrix + ".weight", block.View(matrix + ".weight")});
    return WriteModelFolder(name, LlamaConfig(64, 256, 2, 2, 320), tensors);
  }
  static CalibrationText Count(int tokens, int chunk) {
    CalibrationText text{.chunk_tokens = chunk};
    text.tokens.resize(tokens);
    std::iota(text.tokens.begin(), text.tokens.end(), 0);
    return text;
  }

  // What the folder holds, each tensor by its name.
  std::shared_ptr<const SafetensorsFile> Write(const std::string& in, const LinearScheme& scheme,
                                               const FolderScales& scales, const std::string& name) {
    const std::string out = TestPath(name);
    std::filesystem::remove_all(out);
    const auto checkpoint = Checkpoint::Open(in);
    const auto format = MakeLinearFormat(scheme);
    HONE_CHECK(checkpoint.has_value() && format.has_value());
    const auto plan = PlanFolder(**checkpoint, **format);
    HONE_CHECK(plan.has_value(), plan.has_value() ? "" : plan.error().message);
    const auto report = QuantizeFolder(**checkpoint, **format, scheme, *plan, out, {.scales = &scales}, runtime_);
    HONE_CHECK(report.has_value(), report.has_value() ? "" : report.error().message);
    auto file = SafetensorsFile::OpenFolder(out);
    HONE_CHECK(file.has_value());
    return *file;
  }

  CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{1};
  Clock clock_;
  Runtime runtime_;
};

// The golden's names of the searches, and ours.
const std::map<std::string, std::string> kTags = {{"qkv", "blk.0.qkv"},
                                                  {"o", "blk.0.attn_output.weight"},
                                                  {"gate_up", "blk.0.gate_up.weight"},
                                                  {"down", "blk.0.ffn_down.weight"}};

// What goes into the layer's matrices, by canonical name of one that reads it.
std::map<std::string, std::vector<float>> Inputs(LayerWalk& walk, const CalibrationText& text) {
  std::map<std::string, std::vector<float>> inputs;
  const auto stream = LayerStream::Make(walk, text, StreamOptions{.kv = KvType::kF32});
  HONE_CHECK(stream.has_value() && walk.Load(0, nullptr).has_value());
  const auto observer = [&](const std::string& weight, const float* x, int64_t stride, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r)
      inputs[weight].insert(inputs[weight].end(), x + r * stride, x + r * stride + columns);
  };
  for (size_t c = 0; c < (*stream)->chunks(); ++c) (*stream)->Look(c, observer);
  return inputs;
}

// A matrix and its inputs with the golden's own scales in them and out of them.
struct Scaled {
  std::vector<float> w, x;
  int64_t rows = 0, columns = 0;
};
Scaled WithGoldenScales(const Golden& block, const Golden& golden, const WeightMap& map, const std::vector<float>& x,
                        const std::string& matrix, const std::string& canonical) {
  const Shape& shape = block.View(matrix + ".weight").shape;
  Scaled out{block.Floats(matrix + ".weight"), x, shape[0], shape[1]};
  for (const auto& [tag, input] : kTags) {
    const std::vector<float> scale = golden.Floats("scale." + tag);
    if (SharedInput(canonical) == input) {
      for (size_t i = 0; i < out.w.size(); ++i) out.w[i] *= scale[i % out.columns];
      for (size_t i = 0; i < out.x.size(); ++i) out.x[i] /= scale[i % out.columns];
    }
  }
  for (const auto& [tag, input] : kTags) {
    if (Taker(map, input) != canonical) continue;
    const std::vector<float> scale = golden.Floats("scale." + tag);
    for (size_t i = 0; i < out.w.size(); ++i) out.w[i] /= scale[i / out.columns];
  }
  return out;
}

// The mean squared error of one group's part of the output, by its definition.
double GroupError(const Scaled& m, int64_t group, float largest) {
  const int64_t row = group / (m.columns / 32), first = group % (m.columns / 32) * 32;
  const float* w = &m.w[row * m.columns + first];
  const GridSpec spec{.rule = GridRule::kAwq, .bits = 4, .symmetric = false};
  float cut[32];
  for (int i = 0; i < 32; ++i) cut[i] = std::clamp(w[i], -largest, largest);
  const Grid grid = FindGrid(spec, cut, 32);
  double error = 0;
  for (size_t t = 0; t < m.x.size() / m.columns; ++t) {
    double sum = 0;
    for (int i = 0; i < 32; ++i)
      sum += double{m.x[t * m.columns + first + i]} * (grid.Dequantize(EncodeUniform(spec, grid, cut[i])) - w[i]);
    error += sum * sum;
  }
  return error;
}

// Scales that are an ulp off move codes that tie, so ranges and words are looked at from the golden's own.
TEST_F(ScaleTest, AwqRangesAndWordsAreTheAuthors) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/awq");
  const Golden block(folder + "/block.safetensors");
  const auto checkpoint = Checkpoint::Open(AwqModel(block, "scale_awq_ranges"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto walk = LayerWalk::Open(*checkpoint, runtime_, 40);
  ASSERT_TRUE(walk);
  const auto inputs = Inputs(**walk, Count(320, 40));
  for (const bool duo : {true, false}) {
    const Golden golden(folder + (duo ? "/duo.safetensors" : "/plain.safetensors"));
    for (const auto& [matrix, name] :
         {std::pair("self_attn.q_proj", "attn_q"), {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
          {"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"},
          {"mlp.down_proj", "ffn_down"}}) {
      const std::string canonical = std::string("blk.0.") + name + ".weight";
      Scaled m = WithGoldenScales(block, golden, (*walk)->map(), inputs.at(canonical), matrix, canonical);
      if (golden.Has(std::string("clip_max.") + matrix)) {
        const std::vector<float> wanted = golden.Floats(std::string("clip_max.") + matrix);
        const std::vector<float> got = ChooseClips(AwqGrid(4, false), m.w, m.x, m.columns, 32, runtime_);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) {
          if (std::fabs(got[i] - wanted[i]) <= 1e-6f * wanted[i]) continue;
          const double theirs = GroupError(m, static_cast<int64_t>(i), wanted[i]);
          EXPECT_NEAR(GroupError(m, static_cast<int64_t>(i), got[i]), theirs, 1e-4 * theirs) << duo << name << i;
        }
        ClipWeights(wanted, m.rows, m.columns, 32, m.w.data());
      }
      const auto format = MakeLinearFormat({"awq", "awq", 4, 32, false});
      ASSERT_TRUE(format);
      const RoundedCodes codes =
          RoundToCodes(AwqGrid(4, false), DType::kF16, m.w, m.rows, m.columns, 32, threads_);
      std::vector<std::vector<std::byte>> bytes;
      for (const TensorInfo& info : (*format)->Outputs("m", m.rows, m.columns, DType::kF16))
        bytes.emplace_back(info.bytes());
      (*format)->EncodeCodes(codes.View(m.rows, m.columns, DType::kF16), bytes, threads_);
      size_t at = 0;
      for (const char* part : {".qweight", ".qzeros", ".scales"}) {
        const TensorView& wanted = golden.View(matrix + std::string(part));
        ASSERT_EQ(bytes[at].size(), wanted.bytes()) << matrix << part;
        EXPECT_EQ(std::memcmp(bytes[at].data(), wanted.data, wanted.bytes()), 0) << duo << " " << matrix << part;
        ++at;
      }
    }
  }
}

// The layer walk that all calibrated methods stand on, against the authors' model.
TEST_F(ScaleTest, TheBlockGivesTheAuthorsOutput) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/awq");
  const Golden block(folder + "/block.safetensors");
  const auto checkpoint = Checkpoint::Open(AwqModel(block, "scale_awq_block"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto walk = LayerWalk::Open(*checkpoint, runtime_, 40);
  ASSERT_TRUE(walk) << walk.error().message;
  const auto stream = LayerStream::Make(**walk, Count(320, 40), StreamOptions{.kv = KvType::kF32});
  ASSERT_TRUE(stream && (*walk)->Load(0, nullptr));
  const std::vector<float> wanted = block.Floats("y");
  std::vector<float> got;
  float largest = 0;
  for (const float v : wanted) largest = std::max(largest, std::fabs(v));
  for (size_t c = 0; c < 2; ++c) {
    (*stream)->Advance(c);
    const std::vector<float> y = (*stream)->Copy(c);
    got.insert(got.end(), y.begin(), y.end());
  }
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4f * largest) << i;
}

TEST_F(ScaleTest, AwqIsTheAuthorsSearchFromTextToPackedWords) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/awq");
  const Golden block(folder + "/block.safetensors");
  const std::string model = AwqModel(block, "scale_awq");
  const auto checkpoint = Checkpoint::Open(model);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const CalibrationText text = Count(320, 40);
  for (const bool duo : {true, false}) {
    const Golden golden(folder + (duo ? "/duo.safetensors" : "/plain.safetensors"));
    const auto walk = LayerWalk::Open(*checkpoint, runtime_, 40);
    ASSERT_TRUE(walk) << walk.error().message;
    const auto choice = ChooseAwq(**walk, text, {.bits = 4, .group = 32, .duo = duo}, runtime_);
    ASSERT_TRUE(choice) << choice.error().message;
    ASSERT_EQ(choice->scales.size(), 4u);
    for (const auto& [tag, input] : kTags) {
      // Losses of the whole grid, then the scale of the best.
      const std::vector<double> losses = golden.Numbers("losses." + tag);
      for (int k = 0; k < 20; ++k)
        EXPECT_NEAR(choice->losses.at(input)[k], losses[k], 3e-3 * losses[k]) << duo << " " << tag << " " << k;
      const std::vector<float> scale = golden.Floats("scale." + tag);
      for (size_t i = 0; i < scale.size(); ++i)
        EXPECT_NEAR(choice->scales.at(input).scale[i], scale[i], 1e-4f * scale[i]) << duo << " " << tag << " " << i;
    }
    EXPECT_EQ(choice->scales.at("blk.0.qkv").taker, "blk.0.attn_norm.weight");
    EXPECT_EQ(choice->scales.at("blk.0.attn_output.weight").taker, "blk.0.attn_v.weight");
    EXPECT_EQ(choice->scales.at("blk.0.gate_up.weight").taker, "blk.0.ffn_norm.weight");
    EXPECT_EQ(choice->scales.at("blk.0.ffn_down.weight").taker, "blk.0.ffn_up.weight");
    EXPECT_EQ(choice->clips.size(), 5u);
    EXPECT_EQ(choice->clips.count("blk.0.attn_q.weight") + choice->clips.count("blk.0.attn_k.weight"), 0u);
    // The folder: norms to half a step of their type, codes and zeros of all matrices.
    const auto file = Write(model, {"awq", "awq", 4, 32, false}, {choice->scales, choice->clips, {}}, "scale_awq_out");
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      const std::vector<float> wanted = golden.Floats(std::string("folded.") + norm);
      const TensorView& got = file->FindTensor(std::string("model.layers.0.") + norm + ".weight")->view;
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(F16ToF32(got.as<uint16_t>()[i]), wanted[i], 6e-4f * std::fabs(wanted[i])) << norm << " " << i;
    }
    int64_t codes = 0, differ = 0;
    for (const std::string matrix : kMatrices) {
      for (const char* part : {".qweight", ".qzeros"}) {
        const TensorView& wanted = golden.View(matrix + part);
        const TensorView& got = file->FindTensor("model.layers.0." + matrix + part)->view;
        ASSERT_TRUE(got.shape == wanted.shape) << matrix << part;
        for (int64_t i = 0; i < wanted.shape.elements(); ++i) {
          for (int shift = 0; shift < 32; shift += 4, ++codes)
            differ += ((got.as<uint32_t>()[i] ^ wanted.as<uint32_t>()[i]) >> shift & 15) != 0;
        }
      }
    }
    EXPECT_LE(static_cast<double>(differ), 0.002 * static_cast<double>(codes)) << duo;
  }
}

// One layer whose q, k, v are the golden's matrices.
std::string SmoothModel(const Golden& layer, std::vector<Tensor>* kept) {
  std::vector<NamedTensor> tensors = {{"model.embed_tokens.weight", layer.View("hidden")},
                                      {"model.norm.weight", layer.View("norm")},
                                      {"model.layers.0.input_layernorm.weight", layer.View("norm")},
                                      {"model.layers.0.post_attention_layernorm.weight", layer.View("norm")},
                                      {"model.layers.0.self_attn.q_proj.weight", layer.View("w0")},
                                      {"model.layers.0.self_attn.k_proj.weight", layer.View("w1")},
                                      {"model.layers.0.self_attn.v_proj.weight", layer.View("w2")}};
  for (const auto& [name, shape] : {std::pair("self_attn.o_proj", Shape{128, 64}), {"mlp.gate_proj", Shape{32, 128}},
                                    {"mlp.up_proj", Shape{32, 128}}, {"mlp.down_proj", Shape{128, 32}}}) {
    kept->emplace_back(DType::kF16, shape);
    for (int64_t i = 0; i < shape.elements(); ++i)
      kept->back().as<uint16_t>()[i] = F32ToF16(static_cast<float>(i % 13 - 6) * 0.01f);
    tensors.push_back({std::string("model.layers.0.") + name + ".weight", kept->back().view()});
  }
  return WriteModelFolder("scale_smooth", LlamaConfig(128, 32, 2, 1, 16), tensors);
}

// Rounded a row or a tensor at a time, against the golden's codes (a share of 0.001 may fall the other way at ties).
std::vector<int32_t> ExpectAbsmaxCodes(const Golden& golden, const std::vector<float>& x, int64_t columns,
                                       bool per_tensor, const std::string& name) {
  const GridSpec spec{.rule = GridRule::kAbsmax, .bits = 8};
  const UniformMatrix got =
      QuantizeUniform(spec, x.data(), static_cast<int64_t>(x.size()) / columns, columns, 0, per_tensor);
  const std::vector<double> scales = golden.Numbers(name + ".scale"), codes = golden.Numbers(name + ".codes");
  EXPECT_EQ(got.grids.size(), scales.size()) << name;
  for (size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(got.grids[i].scale, scales[i], 1e-6 * scales[i]) << name << i;
  int64_t differ = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    differ += got.codes[i] != codes[i];
    EXPECT_LE(std::fabs(got.codes[i] - codes[i]), 1) << name << " " << i;
  }
  EXPECT_LE(static_cast<double>(differ), 0.001 * static_cast<double>(codes.size())) << name;
  return {codes.begin(), codes.end()};
}

TEST_F(ScaleTest, SmoothQuantIsTheAuthorsFromTextToIntegerProducts) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/smooth");
  const Golden layer(folder + "/layer.safetensors");
  std::vector<Tensor> kept;
  const std::string model = SmoothModel(layer, &kept);
  const auto checkpoint = Checkpoint::Open(model);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto walk = LayerWalk::Open(*checkpoint, runtime_, 16);
  ASSERT_TRUE(walk);
  const auto stats = CollectInputStats(**walk, Count(16, 16), nullptr);
  ASSERT_TRUE(stats) << stats.error().message;
  const InputStats& qkv = stats->at("blk.0.qkv");
  EXPECT_EQ(qkv.tokens, 16u);
  const std::vector<float> act_max = layer.Floats("act_max"), x = layer.Floats("x"), norm = layer.Floats("norm");
  for (size_t i = 0; i < 128; ++i) {
    double sum = 0, sum2 = 0;
    for (size_t t = 0; t < 16; ++t) sum += std::fabs(x[t * 128 + i]), sum2 += std::pow(x[t * 128 + i], 2);
    EXPECT_NEAR(qkv.max[i], act_max[i], 1e-6f * act_max[i]) << i;
    EXPECT_NEAR(qkv.sum[i], sum, 1e-5 * sum) << i;
    EXPECT_NEAR(qkv.sum2[i], sum2, 1e-5 * sum2) << i;
  }
  for (const char* alpha : {"none", "0.5", "0.75", "0.85"}) {
    const bool scaled = std::string(alpha) != "none";
    const Golden golden(folder + (scaled ? "/alpha" + std::string(alpha) : "/none") + ".safetensors");
    const std::vector<float> wanted = golden.Floats("scale"), folded = golden.Floats("norm");
    ColumnScales scales;
    if (scaled) {
      const auto found = SmoothQuantScales(**walk, *stats, std::stod(alpha), runtime_);
      ASSERT_TRUE(found) << found.error().message;
      scales = *found;
      ASSERT_EQ(scales.size(), 2u);  // those that go into norms
      for (size_t i = 0; i < 128; ++i)
        EXPECT_NEAR(scales.at("blk.0.qkv").scale[i], wanted[i], 1e-6f * wanted[i]) << alpha << " " << i;
    }
    // Static activations: the largest input after smoothing is the golden's scale times 127.
    const std::map<std::string, float> largest = LargestInputs(*stats, scales);
    const float static_scale = golden.Floats("x_tensor.scale")[0];
    EXPECT_NEAR(largest.at("blk.0.qkv") / 127, static_scale, 2e-6f * static_scale) << alpha;
    // The integers, dynamic (a token) and static (the tensor).
    std::vector<float> smooth(x.size());
    for (size_t i = 0; i < x.size(); ++i) smooth[i] = x[i] / wanted[i % 128];
    const std::vector<int32_t> token = ExpectAbsmaxCodes(golden, smooth, 128, false, "x_token"),
                               tensor = ExpectAbsmaxCodes(golden, smooth, 128, true, "x_tensor");
    for (const char* w : {"w0", "w1", "w2"}) {
      std::vector<float> weight = layer.Floats(w);
      for (size_t i = 0; i < weight.size(); ++i) weight[i] *= wanted[i % 128];
      const std::vector<int32_t> codes = ExpectAbsmaxCodes(golden, weight, 128, false, w);
      if (!golden.Has(std::string(w) + ".y_token")) continue;
      const std::vector<double> by_token = golden.Numbers("w0.acc_token"), by_tensor = golden.Numbers("w0.acc_tensor"),
                                y = golden.Numbers("w0.y_token"), sw = golden.Numbers("w0.scale"),
                                sx = golden.Numbers("x_token.scale");
      for (size_t t = 0; t < 16; ++t) {
        for (size_t r = 0; r < 64; ++r) {
          int32_t sums[2] = {};
          for (size_t i = 0; i < 128; ++i)
            sums[0] += token[t * 128 + i] * codes[r * 128 + i], sums[1] += tensor[t * 128 + i] * codes[r * 128 + i];
          EXPECT_EQ(sums[0], by_token[t * 64 + r]) << alpha << " " << t << " " << r;
          EXPECT_EQ(sums[1], by_tensor[t * 64 + r]) << alpha << " " << t << " " << r;
          EXPECT_NEAR(sums[0] * sx[t] * sw[r], y[t * 64 + r], 1e-6 * std::fabs(y[t * 64 + r])) << t << " " << r;
        }
      }
    }
    // Folders: the norm takes 1 / s, weights s, and the static scale is what compressed-tensors makes of that range.
    for (const bool static_activations : {false, true}) {
      LinearScheme scheme{"smoothquant", "compressed-tensors"};
      scheme.static_activations = static_activations;
      const auto file = Write(model, scheme, {scales, {}, largest}, "scale_smooth_out");
      const TensorView& got = file->FindTensor("model.layers.0.input_layernorm.weight")->view;
      for (size_t i = 0; i < 128; ++i)
        EXPECT_NEAR(F16ToF32(got.as<uint16_t>()[i]), folded[i], 6e-4f * std::fabs(folded[i])) << alpha << " " << i;
      const NamedTensor* input = file->FindTensor("model.layers.0.self_attn.q_proj.input_scale");
      ASSERT_EQ(input != nullptr, static_activations);
      if (input == nullptr) continue;
      EXPECT_TRUE(input->view.shape == Shape{1});
      EXPECT_NEAR(F16ToF32(input->view.as<uint16_t>()[0]), static_scale * 127 / 127.5f, 6e-4f * static_scale);
    }
  }
}

// A search that was stopped goes on where it was and finds the same; what it kept is read only if it is whole.
TEST_F(ScaleTest, AStoppedSearchFindsTheSame) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const auto checkpoint = Checkpoint::Open(base);
  ASSERT_TRUE(checkpoint);
  const auto walk = LayerWalk::Open(*checkpoint, runtime_, 32);
  ASSERT_TRUE(walk);
  CalibrationText text{.chunk_tokens = 32};
  for (int i = 0; i < 4 * 32; ++i) text.tokens.push_back(i * 131 % (*walk)->config().vocab);
  AwqOptions options{.group = 32};
  int steps = 0;
  options.progress = [&](double, const std::string&) { return ++steps > 0; };
  const auto whole = ChooseAwq(**walk, text, options, runtime_);
  ASSERT_TRUE(whole) << whole.error().message;
  const int all = steps;
  ASSERT_GT(all, 40);
  const auto pieces = [](const AwqChoice& choice) { return EncodeAwqChoice(choice, ""); };
  options.work_path = TestPath("awq_search");
  for (const int stop : {1, all / 3, all / 2 + 2, all - 1}) {
    options.resume = false;
    steps = 0;
    options.progress = [&](double, const std::string&) { return ++steps < stop; };
    const auto stopped = ChooseAwq(**walk, text, options, runtime_);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    options.resume = true;
    steps = 0;
    options.progress = [&](double, const std::string&) { return ++steps > 0; };
    const auto found = ChooseAwq(**walk, text, options, runtime_);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(pieces(*found) == pieces(*whole)) << stop;
    EXPECT_EQ(stop > all / 2, steps < all * 2 / 3) << "two layers, the first is not searched again";
    // All is there: nothing is run.
    steps = 0;
    const auto again = ChooseAwq(**walk, text, options, runtime_);
    ASSERT_TRUE(again && pieces(*again) == pieces(*whole));
    EXPECT_EQ(steps, 0);
  }
  text.tokens[5] ^= 1;
  const auto other = ChooseAwq(**walk, text, options, runtime_);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("another job"), std::string::npos) << other.error().message;
  RemoveKeptAwq(options.work_path);
  EXPECT_FALSE(std::filesystem::exists(options.work_path) || std::filesystem::exists(options.work_path + ".log"));

  const std::string piece = EncodeAwqChoice(*whole, "blk.1.");
  AwqChoice read;
  ASSERT_TRUE(DecodeAwqChoice(piece, &read));
  EXPECT_TRUE(pieces(read) == piece);
  for (size_t length = 0; length < piece.size(); length += length < 400 ? 1 : 97) {
    AwqChoice none;
    EXPECT_FALSE(DecodeAwqChoice(std::string_view(piece).substr(0, length), &none)) << length;
  }
  AwqChoice none;
  EXPECT_FALSE(DecodeAwqChoice(piece + "x", &none));
  EXPECT_FALSE(DecodeAwqChoice(std::string(piece.size(), '\xff'), &none));
}

TEST_F(ScaleTest, WhatCannotTakeScalesIsLeftAlone) {
  HONE_NEED_SHARED(models, "goldens/models");
  int taken = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(models)) {
    if (entry.path().filename() != "config.json") continue;
    const auto checkpoint = Checkpoint::Open(entry.path().parent_path());
    if (!checkpoint) continue;
    const auto family = FindFamily(**checkpoint);
    const auto config = ReadModelConfig(**checkpoint);
    if (!family || !config) continue;
    const auto map = WeightMap::Make(**checkpoint, **family, *config);
    if (!map) continue;
    for (const LayerUnit& unit : ListLayerUnits(*map, true)) {
      const std::string taker = Taker(*map, unit.input);
      const std::string layer = unit.input.substr(0, unit.input.find('.', 4) + 1);
      if (unit.expert) {
        EXPECT_EQ(taker, "") << entry.path() << " " << unit.input;
      }
      if (taker.empty()) continue;
      ++taken;
      const Weight* weight = map->Find(taker);
      ASSERT_NE(weight, nullptr) << entry.path() << " " << taker;
      EXPECT_EQ(weight->view.shape[0], unit.columns()) << entry.path() << " " << taker;
      // Heads of values that several heads of queries read would need one scale for several columns.
      if (taker == layer + "attn_v.weight") {
        EXPECT_EQ(config->kv_heads, config->heads) << entry.path();
      }
      if (taker == layer + "ffn_norm.weight") {
        EXPECT_EQ(map->Find(layer + "ffn_gate_inp.weight"), nullptr);
      }
    }
  }
  EXPECT_GT(taken, 40);
}

}  // namespace
}  // namespace hone
