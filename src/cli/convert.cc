// hone convert: a model into another format, where that is exact (quantised folders too: compress/folder/rewrite_folder.h); --type
// rounds on purpose and says how much.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/folder_vocabulary.h"
#include "cli/interrupt.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/unused_tensors.h"
#include "compress/folder/folder_config.h"
#include "compress/folder/rewrite_folder.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors_writer.h"
#include "kernels/dequantize/dequantize.h"
#include "models/family.h"
#include "models/gguf_export.h"
#include "models/model.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class ConvertCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("IN", in_, "GGUF file or Hugging Face folder")->required();
    flags.Add("OUT", out_, "a new file (*.gguf) or folder; what is there is not overwritten without --force")->required();
    flags.Add("--type", type_, "type of matrices: f32, f16 or bf16 (default: as they are)")
        ->one_of({"f32", "f16", "bf16"});
    flags.Add("--format", format_,
              "of a quantised folder's matrices: gptq (version 1), gptq-v2, awq, compressed-tensors, or safetensors (dequantised, F32 or "
              "--type)")
        ->one_of({"gptq", "gptq-v2", "awq", "compressed-tensors", "safetensors"});
    flags.AddSwitch("--force", force_, "overwrite OUT");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    std::error_code ignored;
    if (out_.empty()) return UsageError("OUT is empty; wanted the name of a new file (*.gguf) or folder");
    if (fs::exists(out_, ignored) && !force_) return UsageError(out_ + " exists; --force overwrites it");
    if (fs::equivalent(in_, out_, ignored)) return UsageError("IN and OUT are the same");
    HONE_TRY(const auto checkpoint, OpenModel(in_));
    if (out_.ends_with(".gguf")) {
      for (const std::string& warning : WarningsAndUnused(*checkpoint, "left out")) std::fprintf(stderr, "hone convert: %s\n", warning.c_str());
    } else {
      PrintWarnings("convert", *checkpoint);
    }
    if (checkpoint->tensors().empty()) return InvalidInput(checkpoint->path() + ": no weights to convert");
    const bool to_gguf = out_.ends_with(".gguf");
    progress_shown_ = flags.progress();
    if (!format_.empty() && (to_gguf || !checkpoint->is_folder())) {
      return UsageError("--format " + format_ + " is for the matrices of a folder that becomes a folder; a GGUF file has --type");
    }
    if (checkpoint->is_folder() && to_gguf) {
      HONE_RETURN_IF_ERROR(FolderToGguf(checkpoint));
    } else if (checkpoint->is_folder()) {
      HONE_RETURN_IF_ERROR(FolderToFolder(*checkpoint, flags));
    } else if (to_gguf) {
      HONE_RETURN_IF_ERROR(GgufToGguf(*checkpoint));
    } else {
      return Unsupported("GGUF to a Hugging Face folder: GGUF leaves out parts of config.json, so that is not exact; "
                         "give OUT a name that ends in .gguf");
    }
    if (!flags.quiet) Report();
    return kExitDone;
  }

 private:
  std::optional<DType> type() const {
    if (type_.empty()) return std::nullopt;
    return type_ == "f32" ? DType::kF32 : type_ == "f16" ? DType::kF16 : DType::kBF16;
  }

  // Matrices become --type; vectors, and integers, stay.
  DType NewType(const TensorView& view) const {
    return type() && view.shape.rank() > 1 && CanDequantize(view.type) ? *type() : view.type;
  }

  Result<void> FolderToGguf(const std::shared_ptr<const Checkpoint>& checkpoint) {
    HONE_TRY(const GgufExport model, GgufExport::Make(checkpoint, type()));
    if (const JsonConfig* config = checkpoint->config(); config != nullptr && config->IsObject("quantization_config")) {
      HONE_TRY(const JsonConfig quantization, config->Object("quantization_config"));
      HONE_TRY(left_out_, SaidBesideMatrices(quantization));
    }
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint));
    HONE_TRY(const GgufMetadata vocabulary, FolderVocabulary(*checkpoint, *tokenizer, model.config().vocab, "convert"));
    GgufMetadata metadata = model.metadata();
    metadata.insert(metadata.end(), vocabulary.begin(), vocabulary.end());

    // Under another name until a reader of the result is seen to get the same model and the same ids.
    const std::string unverified = out_ + ".unverified.gguf";
    const Result<void> written = WriteAndVerify(model, metadata, unverified, *tokenizer);
    std::error_code error;
    if (written) fs::rename(unverified, out_, error);
    std::error_code ignored;
    if (!written || error) fs::remove(unverified, ignored);
    if (error) return IoError(out_ + ": " + error.message());
    return written;
  }

  Result<void> WriteAndVerify(const GgufExport& model, const GgufMetadata& metadata, const std::string& path,
                              const Tokenizer& tokenizer) {
    ProgressLine progress("writing " + out_, progress_shown_);
    HONE_TRY(const auto writer, GgufWriter::Create(path, metadata, model.tensors()));
    HONE_RETURN_IF_ERROR(model.Write(*writer, [&](uint64_t done, uint64_t total) {
      progress.Update(done, total);
      return !Interrupted();
    }, &tally_));
    HONE_RETURN_IF_ERROR(CheckTally());
    HONE_RETURN_IF_ERROR(writer->Commit());
    return CheckSameAsFolder(path, model.config(), tokenizer);
  }

  Result<void> GgufToGguf(const Checkpoint& checkpoint) {
    GgufMetadata metadata;
    for (const auto& [key, value] : checkpoint.gguf()->metadata()) {
      if (key.rfind("split.", 0) == 0) continue;
      const bool file_type = key == "general.file_type" && type();
      metadata.emplace_back(key, file_type ? GgufU32(type_ == "f32" ? 0 : type_ == "f16" ? 1 : 32) : value);
    }
    std::vector<TensorInfo> infos;
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      infos.push_back({tensor.name, NewType(tensor.view), tensor.view.shape});
    }
    HONE_TRY(const auto writer, GgufWriter::Create(out_, metadata, infos));
    HONE_RETURN_IF_ERROR(CopyTensors(checkpoint, infos, [&](std::span<const std::byte> bytes) { return writer->Append(bytes); }));
    return writer->Commit();
  }

  // What becomes of quantised matrices; nullptr: there are none.
  Result<std::unique_ptr<FolderRewrite>> Rewrite(const Checkpoint& checkpoint, const Runtime& runtime) const {
    HONE_TRY(const bool quantized, IsQuantizedFolder(checkpoint));
    if (!quantized && format_.empty()) return std::unique_ptr<FolderRewrite>();
    if (!quantized) {
      return InvalidInput(checkpoint.path() + ": its matrices are not quantised, so --format has nothing to convert; hone quantize "
                          "makes such a folder");
    }
    const std::string format = format_.empty() && type() ? "safetensors" : format_;
    if (format.empty()) {
      return Unsupported(checkpoint.path() + ": its matrices are quantised; wanted --format gptq, gptq-v2, awq, compressed-tensors or "
                         "safetensors (dequantised), or --type bf16, f16 or f32 (dequantised)");
    }
    if (format != "safetensors" && type()) return UsageError("--type is for matrices of floats, and --format " + format + " has none");
    return FolderRewrite::Make(checkpoint, format, type().value_or(DType::kF32), runtime);
  }

  // A new folder appears whole or not at all. What --force writes into is not emptied: only the old model's weights go.
  Result<void> FolderToFolder(const Checkpoint& checkpoint, const CommonFlags& flags) {
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    HONE_TRY(rewrite_, Rewrite(checkpoint, runtime->runtime()));
    std::error_code error, ignored;
    fs::path out = fs::path(out_).lexically_normal();
    if (out.filename().empty()) out = out.parent_path();
    if (fs::exists(out, ignored)) {
      HONE_RETURN_IF_ERROR(WriteFolder(checkpoint, out));
      RemoveShards(out);
      return {};
    }
    const fs::path partial = out.parent_path() / ("." + out.filename().string().substr(0, 200) + ".partial-" + std::to_string(getpid()));
    Result<void> written = WriteFolder(checkpoint, partial);
    if (written) fs::rename(partial, out, error);
    if (!written || error) fs::remove_all(partial, ignored);
    if (error) return IoError(out_ + ": " + error.message());
    return written;
  }

  // An index left beside the new file would still name the old weights, and readers follow the index.
  static void RemoveShards(const fs::path& folder) {
    std::error_code ignored;
    fs::remove(folder / "model.safetensors.index.json", ignored);
    std::vector<fs::path> shards;
    for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
      const std::string name = it->path().filename();
      if (name.starts_with("model-") && name.ends_with(".safetensors")) shards.push_back(it->path());
    }
    for (const fs::path& shard : shards) fs::remove(shard, ignored);
  }

  Result<void> WriteFolder(const Checkpoint& checkpoint, const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return IoError(out_ + ": cannot make the folder: " + error.message());
    std::vector<TensorInfo> infos;
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      if (rewrite_ == nullptr || !rewrite_->Drops(tensor.name)) infos.push_back({tensor.name, NewType(tensor.view), tensor.view.shape});
    }
    if (rewrite_ != nullptr) infos.insert(infos.end(), rewrite_->tensors().begin(), rewrite_->tensors().end());
    HONE_TRY(const auto writer, SafetensorsWriter::Create((folder / "model.safetensors").string(), infos, {{"format", "pt"}}));
    if (rewrite_ != nullptr && !rewrite_->quantization().empty()) tally_.values += rewrite_->weights();
    HONE_RETURN_IF_ERROR(CopyTensors(checkpoint, writer->order(), [&](std::span<const std::byte> bytes) { return writer->Append(bytes); }));
    HONE_RETURN_IF_ERROR(writer->Commit());
    // What is beside the weights is the same in both; torch_dtype in config.json is a hint that readers check against the file.
    for (fs::directory_iterator it(checkpoint.path(), error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename();
      std::error_code ignored;
      if (!it->is_regular_file(ignored) || name.find(".safetensors") != std::string::npos || name.ends_with(".bin") || name.ends_with(".gguf")) continue;
      fs::copy_file(it->path(), folder / name, fs::copy_options::overwrite_existing, error);
      if (error) return IoError((folder / name).string() + ": " + error.message());
    }
    if (error) return IoError(checkpoint.path() + ": " + error.message());
    return rewrite_ == nullptr ? Result<void>() : WriteConfig(checkpoint, folder);
  }

  // What stands beside matrices that were written anew; then a reader is seen to find all of them.
  Result<void> WriteConfig(const Checkpoint& checkpoint, const fs::path& folder) const {
    const std::string& quantization = rewrite_->quantization();
    std::string dtype;
    if (quantization.empty()) dtype = type_ == "f16" ? "float16" : type_ == "bf16" ? "bfloat16" : "float32";
    HONE_TRY(const std::string config, EditFolderConfig(checkpoint.path() + "/config.json", quantization, dtype));
    std::vector<std::pair<std::string, std::string>> files = {{"config.json", config}};
    std::error_code ignored;
    fs::remove(folder / "quantize_config.json", ignored);
    if (rewrite_->writes_gptq()) files.emplace_back("quantize_config.json", quantization + "\n");
    for (const auto& [name, text] : files) {
      fs::remove(folder / name, ignored);  // a copy may have taken over that the original must not be written to
      std::ofstream out(folder / name, std::ios::binary);
      out << text;
      if (!out.flush()) return IoError((folder / name).string() + ": cannot write");
    }
    HONE_TRY(const auto written, Checkpoint::Open(folder.string()));
    HONE_TRY(const Family* family, FindFamily(*written));
    HONE_TRY(const ModelConfig model, ReadModelConfig(*written));
    HONE_TRY(const WeightMap map, WeightMap::Make(*written, *family, model));
    return {};
  }

  template <typename Append>
  Result<void> CopyTensors(const Checkpoint& checkpoint, const std::vector<TensorInfo>& infos, Append append) {
    ProgressLine progress("writing " + out_, progress_shown_);
    uint64_t total = 0, done = 0;
    for (const TensorInfo& info : infos) total += info.bytes();
    std::vector<std::byte> row;
    for (const TensorInfo& info : infos) {
      if (rewrite_ != nullptr && rewrite_->Makes(info.name)) {
        HONE_TRY(const std::span<const std::byte> bytes, rewrite_->Bytes(info.name, &tally_));
        HONE_RETURN_IF_ERROR(append(bytes));
        progress.Update(done += info.bytes(), total);
        if (Interrupted()) return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
        continue;
      }
      const TensorView& view = checkpoint.FindTensor(info.name)->view;
      if (info.type == view.type) {
        HONE_RETURN_IF_ERROR(append(std::span(view.data, view.bytes())));
        tally_.values += static_cast<uint64_t>(view.shape.elements());
      } else {
        row.resize(BytesFor(info.type, view.shape.back()));
        for (int64_t i = 0; i < view.shape.rows(); ++i) {
          ConvertRows(view, i, 1, false, info.type, row.data(), &tally_);
          HONE_RETURN_IF_ERROR(append(std::span<const std::byte>(row)));
        }
      }
      checkpoint.Release(view);
      progress.Update(done += info.bytes(), total);
      if (Interrupted()) return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
    }
    return CheckTally();
  }

  Result<void> CheckTally() const {
    if (tally_.overflowed == 0) return {};
    return Unsupported(fmt::format("{} values are beyond the range of {}; use --type bf16 or f32", tally_.overflowed, type_));
  }

  void Report() const {
    const std::string how = tally_.rounded == 0 ? "exact" : fmt::format("{} of {} values rounded to {}", tally_.rounded, tally_.values, type_);
    std::fputs(fmt::format("{}: {} values, {}\n", out_, tally_.values, how).c_str(), stderr);
    if (!left_out_.empty()) std::fputs(fmt::format("{}: GGUF has no place for {}; left out\n", out_, left_out_).c_str(), stderr);
  }

  std::string in_, out_, type_, format_;
  std::string left_out_;  // what a folder said that GGUF cannot say
  std::unique_ptr<FolderRewrite> rewrite_;  // of quantised matrices
  bool force_ = false, progress_shown_ = false;
  RoundingCount tally_;
};

}  // namespace

std::unique_ptr<Command> MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace hone
