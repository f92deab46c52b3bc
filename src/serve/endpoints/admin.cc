// /admin/models: other weights under the same name, tried on a share of the requests before they answer all.
//   GET  /admin/models            what is loaded, and how the canary does against the stable model
//   POST /admin/models            {"model": PATH, "share": 0.1, "rule": {...}}: loads beside the old, then sends the
//   share POST /admin/models/share      {"share": 0.5} POST /admin/models/promote    {}: the canary answers all new
//   requests; the old weights finish what they began POST /admin/models/rollback   {}: the canary gets no new request
// The admin key is checked by the router.
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/json_writer.h"

namespace hone {
namespace {

constexpr std::string_view kBeginFields[] = {"model", "share", "rule"};
constexpr std::string_view kRuleFields[] = {"requests", "more_errors", "slower", "promote", "roll_back"};
constexpr std::string_view kShareFields[] = {"share"};

void WriteSide(JsonWriter& json, std::string_view name, const CanarySide& side) {
  json.Key(name).BeginObject().Field("ended", side.ended).Field("errors", side.errors);
  json.Key("error_rate").Double(side.error_rate());
  json.Key("mean_ttft_s").Double(side.mean_ttft_s()).Key("mean_inter_token_s").Double(side.mean_tpot_s()).EndObject();
}

std::string_view VerdictText(CanaryVerdict verdict) {
  return verdict == CanaryVerdict::kWait ? "wait" : verdict == CanaryVerdict::kGood ? "good" : "bad";
}

std::string StateJson(const ServeContext& context) {
  const CanaryState state = context.models.state();
  const std::shared_ptr<ServedModel> stable = context.models.stable(), canary = context.models.canary();
  JsonWriter json;
  json.BeginObject().Key("models").BeginArray();
  for (const auto& model : context.models.all()) {
    const EngineStats stats = model->engine->stats();
    json.BeginObject()
        .Field("weights", model->number)
        .Field("root", model->root)
        .Field("fingerprint", model->fingerprint);
    json.Field("role", model == stable ? "stable" : model == canary ? "canary" : "retiring");
    json.Field("running", stats.running).Field("waiting", stats.waiting);
    json.Field("answers", model->metrics.finished()).Field("errors", model->metrics.errors());
    json.Key("ttft_s").BeginObject();
    json.Key("mean").Double(model->metrics.ttft_s.mean()).Key("p50").Double(model->metrics.ttft_s.Quantile(0.5));
    json.Key("p99").Double(model->metrics.ttft_s.Quantile(0.99)).EndObject();
    json.Key("inter_token_s").BeginObject();
    json.Key("mean").Double(model->metrics.tpot_s.mean()).Key("p50").Double(model->metrics.tpot_s.Quantile(0.5));
    json.Key("p99").Double(model->metrics.tpot_s.Quantile(0.99)).EndObject().EndObject();
  }
  json.EndArray().Key("canary").BeginObject().Field("phase", PhaseText(state.phase));
  if (state.phase != CanaryState::Phase::kNone) {
    json.Field("model", state.model).Field("weights", state.number).Key("share").Double(state.share);
    json.Field("verdict", VerdictText(state.verdict)).Field("why", state.why);
    json.Key("rule")
        .BeginObject()
        .Field("requests", state.rule.requests)
        .Key("more_errors")
        .Double(state.rule.more_errors);
    json.Key("slower")
        .Double(state.rule.slower)
        .Field("promote", state.rule.promote)
        .Field("roll_back", state.rule.roll_back);
    json.EndObject();
    WriteSide(json, "since_start_stable", state.stable_side);
    WriteSide(json, "since_start_canary", state.canary_side);
  }
  json.EndObject().EndObject();
  return std::move(json).text();
}

std::optional<ApiError> ReadRule(FieldReader& reader, const FieldPolicy& policy, CanaryRule* rule) {
  const Json* object = reader.Get("rule");
  if (object == nullptr) return reader.error();
  if (!object->is_object()) return BadValue("rule", *object, "an object");
  if (auto error = CheckNames(*object, "rule", kRuleFields, policy)) return error;
  FieldReader inner(*object);
  inner.Int("requests", 1, 1000000000, &rule->requests);
  inner.Double("more_errors", 0, false, 1, &rule->more_errors);
  inner.Double("slower", 1, false, 1000, &rule->slower);
  inner.Bool("promote", &rule->promote);
  inner.Bool("roll_back", &rule->roll_back);
  if (inner.error()) {
    inner.error()->param.insert(0, "rule.");
    inner.error()->message.insert(0, "rule.");
  }
  return inner.error();
}

std::optional<ApiError> ReadShare(FieldReader& reader, double* out) {
  reader.Double("share", 0, false, 1, out);
  return reader.error();
}

void Answer(ServeContext& context, const HttpRequest& request, ResponseWriter& writer,
            const std::optional<ApiError>& refused, const Result<void>& result, int status) {
  if (refused) return Refuse(*refused, request, writer);
  if (!result) {
    ApiError error = FromError(result.error());
    if (result.error().code == ErrorCode::kUsage) error.status = 409, error.code = "conflict", error.may_retry = false;
    return Refuse(error, request, writer);
  }
  HttpResponse response;
  response.status = status;
  response.body = StateJson(context);
  writer.Send(std::move(response));
}

}  // namespace

void AdminModelsEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  HttpResponse response;
  response.body = StateJson(context);
  writer->Send(std::move(response));
}

void AdminLoadEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const FieldPolicy policy{context.options.lenient_fields, context.runtime.log};
  Json document;
  std::string model;
  double share = 0.1;
  CanaryRule rule;
  const auto read = [&]() -> std::optional<ApiError> {
    if (auto error = ParseBody(request.body, &document)) return error;
    if (auto error = CheckNames(document, "", kBeginFields, policy)) return error;
    FieldReader reader(document);
    reader.String("model", &model);
    if (reader.error()) return reader.error();
    if (model.empty()) return ApiError{400, "model: missing, wanted the path of a model", "model", "missing_field"};
    if (auto error = ReadShare(reader, &share)) return error;
    return ReadRule(reader, policy, &rule);
  };
  const std::optional<ApiError> refused = read();
  Answer(context, request, *writer, refused, refused ? Result<void>() : context.models.BeginCanary(model, share, rule),
         202);
}

void AdminShareEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const FieldPolicy policy{context.options.lenient_fields, context.runtime.log};
  Json document;
  double share = 0;
  const auto read = [&]() -> std::optional<ApiError> {
    if (auto error = ParseBody(request.body, &document)) return error;
    if (auto error = CheckNames(document, "", kShareFields, policy)) return error;
    FieldReader reader(document);
    if (!reader.Has("share"))
      return ApiError{400, "share: missing, wanted a number in [0, 1]", "share", "missing_field"};
    return ReadShare(reader, &share);
  };
  const std::optional<ApiError> refused = read();
  Answer(context, request, *writer, refused, refused ? Result<void>() : context.models.SetShare(share), 200);
}

namespace {

// Promote and roll back take no field; a body may be left out.
std::optional<ApiError> RefuseFields(const ServeContext& context, const HttpRequest& request) {
  if (request.body.empty()) return std::nullopt;
  Json document;
  if (auto error = ParseBody(request.body, &document)) return error;
  return CheckNames(document, "", {}, {context.options.lenient_fields, context.runtime.log});
}

}  // namespace

void AdminPromoteEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::optional<ApiError> refused = RefuseFields(context, request);
  Answer(context, request, *writer, refused, refused ? Result<void>() : context.models.Promote("by command"), 200);
}

void AdminRollBackEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::optional<ApiError> refused = RefuseFields(context, request);
  Answer(context, request, *writer, refused, refused ? Result<void>() : context.models.RollBack("by command"), 200);
}

}  // namespace hone
