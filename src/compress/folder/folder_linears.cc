// See folder_linears.h.
#include "compress/folder/folder_linears.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "compress/layerwise/layer_quantizer.h"
#include "models/family.h"
#include "models/model.h"

namespace hone {
namespace {

constexpr int64_t kFewest = 16;  // rows and columns of a matrix worth the while

std::string WithoutWeight(std::string_view name) { return std::string(name.substr(0, name.size() - kWeightSuffix.size())); }

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return Has(text, part); });
}
bool IsAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}
bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// "model.layers.0.mlp" in lower case, at its dots.
std::vector<std::string> Parts(std::string_view module) {
  std::vector<std::string> parts(1);
  for (const char c : module) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return parts;
}

bool IsEmbedding(std::string_view last) { return Has(last, "embed") || IsAny(last, {"wte", "wpe"}); }

// Why the matrix of this module is not taken; "": it is. `vocab`: rows of embeddings.
std::string WhyPassedOver(const std::vector<std::string>& parts, const TensorView& view, const std::set<int64_t>& vocab) {
  const std::string_view last = parts.back();
  const auto any = [&](auto holds) { return std::any_of(parts.begin(), parts.end(), holds); };
  if (any([](std::string_view part) {
        return HasAny(part, {"vision", "visual", "image", "audio", "speech", "video", "siglip", "whisper", "projector", "resampler",
                             "perceiver", "aligner"}) ||
               IsAny(part, {"vit", "clip", "connector"});
      }))
    return "not of the decoder: a tower for images or sound";
  if (any([](std::string_view part) { return part == "encoder"; })) return "not of the decoder: an encoder";
  if (any([](std::string_view part) { return part == "mtp" || part.starts_with("mtp_"); })) return "a layer for several tokens ahead";
  if (IsEmbedding(last)) return "an embedding";
  if (last == "lm_head" || vocab.count(view.shape[view.shape.rank() - 2]) > 0) return "an output";
  if (!any(IsNumber)) return "outside of numbered layers";
  if (any([](std::string_view part) { return Has(part, "router") || IsAny(part, {"gate", "gating"}) || part.ends_with("expert_gate"); }))
    return "a router";
  if (HasAny(last, {"norm", "bias", "conv"}) || last.starts_with("ln_")) return "no linear layer by its name";
  const int64_t rows = view.shape[view.shape.rank() - 2], columns = view.shape.back();
  if (std::min(rows, columns) < kFewest) return fmt::format("less than {} rows or columns", kFewest);
  return "";
}

// Layers that engines fuse, by what they are called everywhere.
std::string InputOf(const std::string& module) {
  const size_t dot = module.rfind('.');
  const std::string parent = module.substr(0, dot + 1), last = module.substr(dot + 1);
  if (IsAny(last, {"q_proj", "k_proj", "v_proj", "query", "key", "value", "wq", "wk", "wv", "q", "k", "v"})) return parent + "qkv";
  if (IsAny(last, {"gate_proj", "up_proj", "w1", "w3"})) return parent + "gate_up";
  if (IsAny(last, {"q_a_proj", "kv_a_proj_with_mqa"})) return parent + "qkv_a";
  return module;
}

// [experts, out, in] as its matrices.
void AddExperts(const NamedTensor& tensor, FolderLinears* found) {
  const std::string module = WithoutWeight(tensor.name);
  const size_t at = module.find("experts.") + std::string_view("experts.").size();
  for (int64_t e = 0; e < tensor.view.shape[0]; ++e) {
    const std::string name = fmt::format("{}{}.{}", module.substr(0, at), e, module.substr(at));
    found->linears.push_back({name + std::string(kWeightSuffix), tensor.name, InputOf(name), tensor.view.Slice(e)});
  }
}

FolderLinears ByNames(const Checkpoint& checkpoint, std::string not_run) {
  FolderLinears found{.not_run = std::move(not_run), .linears = {}, .kept_modules = {}, .passed_over = {}};
  std::set<int64_t> vocab;
  bool conv1d = false;  // GPT-2's layers lie [in, out]; the one that widens tells
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (!tensor.name.ends_with(kWeightSuffix) || tensor.view.shape.rank() != 2) continue;
    const std::string last = Parts(WithoutWeight(tensor.name)).back();
    if (IsAny(last, {"embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in"})) vocab.insert(tensor.view.shape[0]);
    conv1d = conv1d || (last == "c_fc" && tensor.view.shape[0] < tensor.view.shape[1]);
  }
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    const int rank = tensor.view.shape.rank();
    if (rank < 2) continue;
    if (!tensor.name.ends_with(kWeightSuffix)) {
      found.passed_over.emplace_back(tensor.name, rank == 3 && Has(tensor.name, "experts")
                                                      ? "experts in one tensor that does not say which of its sides is the input"
                                                      : "no linear layer by its name");
      continue;
    }
    const std::string module = WithoutWeight(tensor.name);
    const std::vector<std::string> parts = Parts(module);
    const bool experts = rank == 3 && Has(module, "experts.");
    std::string why = rank == 2 || experts ? WhyPassedOver(parts, tensor.view, vocab) : "no matrix";
    if (why.empty() && conv1d && parts.back().starts_with("c_")) why = "input by output (Conv1D), not a linear layer's order";
    if (why.empty() && experts) {
      AddExperts(tensor, &found);
    } else if (why.empty()) {
      found.linears.push_back({tensor.name, tensor.name, InputOf(module), tensor.view});
    } else {
      if (rank == 2 && !IsEmbedding(parts.back())) found.kept_modules.push_back(module);
      found.passed_over.emplace_back(tensor.name, std::move(why));
    }
  }
  return found;
}

// Why hone cannot run the model, in an error of its own; "": it can.
Result<std::string> WhyNotRun(const Checkpoint& checkpoint) {
  const Result<ModelConfig> config = ReadModelConfig(checkpoint);
  if (config) return std::string();
  if (config.error().code != ErrorCode::kUnsupported) return config.error();
  return config.error().message;
}

}  // namespace

Result<FolderLinears> FindFolderLinears(const Checkpoint& checkpoint) {
  HONE_TRY(std::string not_run, WhyNotRun(checkpoint));
  if (!not_run.empty()) return ByNames(checkpoint, std::move(not_run));
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint, *family, config));
  FolderLinears found;
  std::set<std::string> names;
  for (const LayerUnit& unit : ListLayerUnits(map, false)) {
    const NamedTensor* tensor = checkpoint.FindTensor(unit.name);
    names.insert(unit.name);
    found.linears.push_back({unit.name, unit.name, unit.input, tensor != nullptr ? tensor->view : unit.view});
  }
  for (const Weight& weight : map.weights()) {
    const bool linear = weight.view.shape.rank() == 2 && weight.name != "token_embd.weight" && weight.name != "output.weight";
    if (linear && weight.file_name.ends_with(kWeightSuffix) && names.count(weight.file_name) == 0)
      found.kept_modules.push_back(WithoutWeight(weight.file_name));
  }
  for (const std::string& name : map.unused()) {  // a tower for images, layers for several tokens ahead
    if (name.ends_with(kWeightSuffix) && checkpoint.FindTensor(name)->view.shape.rank() == 2) found.kept_modules.push_back(WithoutWeight(name));
  }
  return found;
}

Result<void> NeedsARun(const Checkpoint& checkpoint, const std::string& what) {
  HONE_TRY(const std::string not_run, WhyNotRun(checkpoint));
  if (not_run.empty()) return {};
  return Unsupported(fmt::format("{}. {} needs what hone knows of a family. Folders of any decoder are written by --method rtn, w8a8, fp8, "
                                 "mxfp8, mxfp4, nvfp4, nf4, fp4, llm-int8 and hqq", not_run, what));
}

}  // namespace hone
