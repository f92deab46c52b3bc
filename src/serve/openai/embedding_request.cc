// See embedding_request.h.
#include "serve/openai/embedding_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/json_writer.h"
#include "serve/limits.h"

namespace hone {
namespace {

class EmbeddingAnswer final : public AnswerShape {
 public:
  EmbeddingAnswer(std::string model, size_t inputs, bool base64)
      : model_(std::move(model)), base64_(base64), embeddings_(inputs) {}

  // Never streamed.
  std::string Opening(int, const SequenceEvent&) override { return ""; }
  std::string Delta(int, const SequenceEvent&) override { return ""; }
  std::string Closing(int, const SequenceEvent&) override { return ""; }
  std::string End(const Usage&) override { return ""; }

  void Add(int choice, const SequenceEvent& event) override {
    if (!event.embedding.empty()) embeddings_[static_cast<size_t>(choice)] = event.embedding;
  }
  std::string Whole(const Usage& usage) override {
    JsonWriter json;
    json.BeginObject().Field("object", "list").Key("data").BeginArray();
    for (size_t i = 0; i < embeddings_.size(); ++i) {
      json.BeginObject().Field("object", "embedding").Field("index", static_cast<int64_t>(i)).Key("embedding");
      const std::vector<float>& values = embeddings_[i];
      if (base64_) {
        json.String(Base64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}));
      } else {
        json.BeginArray();
        for (const float value : values) json.Double(static_cast<double>(value));
        json.EndArray();
      }
      json.EndObject();
    }
    json.EndArray().Field("model", model_).Key("usage").BeginObject().Field("prompt_tokens", usage.prompt_tokens);
    json.Field("total_tokens", usage.prompt_tokens).EndObject().EndObject();
    return std::move(json).text();
  }

 private:
  const std::string model_;
  const bool base64_;
  std::vector<std::vector<float>> embeddings_;
};

}  // namespace

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<ApiError> ParseEmbeddingRequest(std::string_view body, const RequestRules& rules, int width,
                                              EmbeddingRequest* out) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckFields(document, &FieldRule::embedding, rules.policy)) return error;
  FieldReader reader(document);
  if (!reader.Has("model")) {
    reader.Fail({400, "model: missing; this server has \"" + rules.model + "\"", "model", "missing_field"});
  }
  CheckModel(reader, rules, &out->fields);
  std::string format = "float", pooling = "mean", user;
  reader.String("encoding_format", &format);
  if (format != "float" && format != "base64") {
    reader.Fail(BadValue("encoding_format", Json(format), "\"float\" or \"base64\""));
  }
  out->base64 = format == "base64";
  reader.String("pooling", &pooling);
  if (pooling != "mean" && pooling != "last") reader.Fail(BadValue("pooling", Json(pooling), "\"mean\" or \"last\""));
  SequenceRequest& sequence = out->fields.sequence;
  sequence.pooling = pooling == "last" ? Pooling::kLast : Pooling::kMean;
  sequence.prompt_only = true;
  int dimensions = width;
  reader.Int("dimensions", 1, 1 << 20, &dimensions);
  if (dimensions != width) {
    reader.Fail({400,
                 "dimensions: found " + std::to_string(dimensions) + "; embeddings of this model have " +
                     std::to_string(width) + ", and fewer would not mean the same",
                 "dimensions", "unsupported_value"});
  }
  reader.Bool("add_special_tokens", &out->add_special);
  ReadScheduling(reader, rules, &sequence);
  reader.String("user", &user);
  if (reader.error()) return reader.error();
  return ReadPrompts(document, "input", kMaxInputs, rules, &out->inputs);
}

std::unique_ptr<AnswerShape> MakeEmbeddingAnswer(const std::string& model, size_t inputs, bool base64) {
  return std::make_unique<EmbeddingAnswer>(model, inputs, base64);
}

}  // namespace hone
