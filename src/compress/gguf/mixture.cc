// One function a kind of tensor; the order of tests within it is part of the rule.
#include "compress/gguf/mixture.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "compress/gguf/block_quantizers.h"

namespace hone {
namespace {

using Id = GgufFileTypeId;

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// N of "blk.N.", or -1.
int LayerOf(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

class Chooser {
 public:
  Chooser(const std::vector<TensorInfo>& tensors, const MixtureOptions& options)
      : options_(options), id_(options.file_type->id) {
    for (const TensorInfo& tensor : tensors) {
      has_output_ |= tensor.name == "output.weight";
      attn_v_count_ += IsValue(tensor.name);
    }
  }

  DType Choose(const TensorInfo& tensor) {
    const std::string& name = tensor.name;
    const DType plain = options_.file_type->type;
    if (options_.pure) return plain;
    if (name == "output.weight" || (!has_output_ && name == "token_embd.weight")) return Output(tensor, plain);
    if (id_ == Id::kMXFP4_MOE) return tensor.shape.rank() > 2 ? DType::kMXFP4 : DType::kQ8_0;
    if (name == "token_embd.weight") return id_ == Id::kTQ2_0 ? DType::kQ4_K : plain;
    if (IsValue(name)) return Value(plain);
    if (Contains(name, "attn_k.weight")) return options_.experts == 8 ? DType::kQ8_0 : plain;
    if (Contains(name, "ffn_down")) return Down(name, plain);
    if (Contains(name, "attn_output.weight")) return AttentionOutput(plain);
    return plain;
  }

 private:
  // Fused projections count as values too: that is how the rules are written.
  static bool IsValue(std::string_view name) {
    return Contains(name, "attn_v.weight") || Contains(name, "attn_qkv.weight") || Contains(name, "attn_kv_b.weight");
  }
  bool Is(std::initializer_list<Id> ids) const { return std::find(ids.begin(), ids.end(), id_) != ids.end(); }
  static bool UseMoreBits(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }
  int gqa() const { return options_.kv_heads > 0 ? options_.heads / options_.kv_heads : 1; }

  DType Output(const TensorInfo& tensor, DType plain) const {
    if (id_ == Id::kMXFP4_MOE) return DType::kQ8_0;
    if (options_.architecture == "falcon" || tensor.shape.back() % Info(plain).block_elements != 0) return DType::kQ8_0;
    return plain == DType::kQ8_0 ? plain : DType::kQ6_K;
  }

  DType Value(DType plain) {
    const int i = attn_v_index_++;
    DType type = plain;
    if (id_ == Id::kQ2_K) {
      type = gqa() >= 4 ? DType::kQ4_K : DType::kQ3_K;
    } else if (id_ == Id::kQ2_K_S && gqa() >= 4) {
      type = DType::kQ4_K;
    } else if (id_ == Id::kQ3_K_M) {
      type = i < 2 ? DType::kQ5_K : DType::kQ4_K;
    } else if (id_ == Id::kQ3_K_L) {
      type = DType::kQ5_K;
    } else if (Is({Id::kIQ4_NL, Id::kIQ4_XS}) && gqa() >= 4) {
      type = DType::kQ5_K;
    } else if (Is({Id::kQ4_K_M, Id::kQ5_K_M}) && UseMoreBits(i, attn_v_count_)) {
      type = DType::kQ6_K;
    } else if (id_ == Id::kQ4_K_S && i < 4) {
      type = DType::kQ5_K;
    }
    // In the 70B models eight query heads share a value head: more bits there cost next to nothing.
    const bool is_70b = options_.layers == 80 && options_.heads != options_.kv_heads;
    if (is_70b && (type == DType::kQ3_K || type == DType::kQ4_K)) type = DType::kQ5_K;
    if (options_.experts == 8) type = DType::kQ8_0;
    return type;
  }

  DType Down(std::string_view name, DType plain) {
    // Experts are stored a layer at a time or one by one: only the name tells the layer.
    const int counted = down_index_++;
    const int i = options_.experts > 1 ? std::max(0, LayerOf(name)) : counted, n = options_.layers;
    const bool early = i < n / 8;
    switch (id_) {
      case Id::kQ2_K:
        return DType::kQ3_K;
      case Id::kQ2_K_S:
        return early ? DType::kQ4_K : plain;
      case Id::kQ3_K_M:
        return FalconOr(i < n / 16 ? DType::kQ5_K : DType::kQ4_K, i < n / 16          ? DType::kQ5_K
                                                                  : UseMoreBits(i, n) ? DType::kQ4_K
                                                                                      : DType::kQ3_K);
      case Id::kQ3_K_L:
        return FalconOr(DType::kQ5_K, DType::kQ4_K);
      case Id::kQ4_K_M:
        return FalconOr(UseMoreBits(i, n) ? DType::kQ6_K : plain, i < n / 16          ? DType::kQ6_K
                                                                  : UseMoreBits(i, n) ? DType::kQ5_K
                                                                                      : DType::kQ4_K);
      case Id::kIQ4_NL:
      case Id::kIQ4_XS:
        return early && !options_.importance ? DType::kQ5_K : plain;
      case Id::kQ5_K_M:
        return UseMoreBits(i, n) ? DType::kQ6_K : plain;
      case Id::kQ4_K_S:
        return early && options_.architecture != "falcon" ? DType::kQ5_K : plain;
      case Id::kQ4_0:
        return early && options_.importance ? DType::kQ4_1 : plain;
      case Id::kQ5_0:
        return early && options_.importance ? DType::kQ5_1 : plain;
      default:
        return plain;
    }
  }
  DType FalconOr(DType usual, DType falcon) const { return options_.architecture == "falcon" ? falcon : usual; }

  DType AttentionOutput(DType plain) const {
    if (options_.architecture == "falcon") return id_ == Id::kQ3_K_L ? DType::kQ4_K : plain;
    if (options_.experts == 8) {
      const bool low = Is({Id::kQ2_K, Id::kQ3_K_S, Id::kQ3_K_M, Id::kQ4_K_S, Id::kQ4_K_M, Id::kIQ4_NL, Id::kIQ4_XS});
      return low ? DType::kQ5_K : plain;
    }
    switch (id_) {
      case Id::kQ2_K:
        return DType::kQ3_K;
      case Id::kQ3_K_M:
        return DType::kQ4_K;
      case Id::kQ3_K_L:
        return DType::kQ5_K;
      default:
        return plain;
    }
  }

  const MixtureOptions& options_;
  const Id id_;
  bool has_output_ = false;
  int attn_v_count_ = 0, attn_v_index_ = 0, down_index_ = 0;
};

// The nearest type whose blocks divide more rows.
DType Smaller(DType type) {
  switch (type) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kTQ2_0:
      return DType::kQ4_0;
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    case DType::kIQ4_XS:
      return DType::kIQ4_NL;
    default:
      return DType::kF16;
  }
}

}  // namespace

const std::vector<GgufFileType>& GgufFileTypes() {
  static const std::vector<GgufFileType> types = {
#define HONE_GGUF_FILE_TYPE(name, id, type) {#name, GgufFileTypeId::k##name, DType::k##type},
#include "compress/gguf/file_types.inc"
#undef HONE_GGUF_FILE_TYPE
  };
  return types;
}

Result<const GgufFileType*> FindGgufFileType(std::string_view name) {
  std::string wanted = Upper(name);
  if (wanted == "Q3_K" || wanted == "Q4_K" || wanted == "Q5_K") wanted += "_M";
  std::string names;
  for (const GgufFileType& type : GgufFileTypes()) {
    if (type.name == wanted) return &type;
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  if (wanted == "F32" || wanted == "F16" || wanted == "BF16") {
    return UsageError("--type " + wanted + " is no quantisation; hone convert --type " + std::string(name) +
                      " writes it");
  }
  const bool known = wanted.starts_with("IQ1") || wanted.starts_with("IQ2") || wanted.starts_with("IQ3") ||
                     wanted.starts_with("TQ1") || wanted == "Q1_0" || wanted == "Q2_0" || wanted == "NVFP4";
  return UsageError("--type " + std::string(name) +
                    (known ? ": hone does not write that type; wanted one of " : ": unknown; wanted one of ") + names);
}

bool IsQuantizable(const TensorInfo& tensor) {
  const std::string& name = tensor.name;
  if (!name.ends_with("weight") || tensor.shape.rank() < 2) return false;
  static constexpr std::array<std::string_view, 17> kKept = {"_norm.weight",
                                                             "ffn_gate_inp",
                                                             "altup",
                                                             "laurel",
                                                             "per_layer_model_proj",
                                                             "position_embd.weight",
                                                             "token_types.weight",
                                                             "ssm_conv1d",
                                                             "shortconv.conv",
                                                             "time_mix_first",
                                                             "time_mix_w",
                                                             "time_mix_v",
                                                             "time_mix_a",
                                                             "time_mix_g",
                                                             "time_mix_lerp",
                                                             "attn_rel_b",
                                                             "inp_gate"};
  return std::none_of(kKept.begin(), kKept.end(), [&](std::string_view part) { return Contains(name, part); });
}

std::vector<TensorType> ChooseTypes(const std::vector<TensorInfo>& tensors, const MixtureOptions& options) {
  std::vector<TensorInfo> quantizable;
  for (const TensorInfo& tensor : tensors) {
    if (IsQuantizable(tensor)) quantizable.push_back(tensor);
  }
  Chooser chooser(quantizable, options);
  std::vector<TensorType> types;
  for (const TensorInfo& tensor : tensors) {
    if (!IsQuantizable(tensor)) {
      types.push_back({tensor.type, ""});
      continue;
    }
    const DType wanted = chooser.Choose(tensor);
    DType type = wanted;
    while (tensor.shape.back() % Info(type).block_elements != 0) type = Smaller(type);
    std::string note;
    if (type != wanted) {
      note = "rows of " + std::to_string(tensor.shape.back()) + " are no whole blocks of " +
             std::string(Info(wanted).name);
    }
    types.push_back({type, std::move(note)});
  }
  return types;
}

bool GgufOrder(std::string_view a, std::string_view b) {
  const int layer_a = LayerOf(a), layer_b = LayerOf(b);
  return layer_a != layer_b ? layer_a < layer_b : a < b;
}

}  // namespace hone
