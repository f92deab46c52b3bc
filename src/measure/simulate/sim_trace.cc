// See sim_trace.h.
#include "measure/simulate/sim_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

Result<int> Length(const ordered_json& item, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto it = item.find(key);
    if (it == item.end()) continue;
    if (!it->is_number() || !(it->get<double>() >= 1) || it->get<double>() > kMostSimTokens)
      return InvalidInput(fmt::format("{}: wanted a number of tokens from 1 to {}", key, kMostSimTokens));
    return static_cast<int>(it->get<double>());
  }
  return InvalidInput(fmt::format("{} is missing", *keys.begin()));
}

Result<SimRequest> Parse(std::string_view line) {
  const ordered_json item = ParseJson(line);
  if (!item.is_object()) return InvalidInput("wanted a JSON object");
  SimRequest request;
  const bool seconds = item.contains("time_s");
  const auto time = item.find(seconds ? "time_s" : "timestamp");
  if (time == item.end() || !time->is_number()) return InvalidInput("timestamp: wanted a number (milliseconds), or time_s in seconds");
  request.at_s = time->get<double>() / (seconds ? 1 : 1000);
  if (!(request.at_s >= 0 && request.at_s < 1e9)) return InvalidInput("timestamp: wanted a time from 0 on");
  HONE_TRY(request.input, Length(item, {"input_length", "input_tokens", "prompt_tokens"}));
  HONE_TRY(request.output, Length(item, {"output_length", "output_tokens", "max_tokens", "completion_tokens"}));
  if (const auto priority = item.find("priority"); priority != item.end()) {
    if (!priority->is_number_integer() || std::abs(priority->get<double>()) > 1e6) return InvalidInput("priority: wanted a whole number");
    request.priority = priority->get<int>();
  }
  if (const auto ids = item.find("hash_ids"); ids != item.end()) {
    if (!ids->is_array()) return InvalidInput("hash_ids: wanted an array of whole numbers");
    for (const ordered_json& id : *ids) {
      if (!id.is_number_integer()) return InvalidInput("hash_ids: wanted an array of whole numbers");
      request.prefix.push_back(id.is_number_unsigned() ? id.get<uint64_t>() : static_cast<uint64_t>(id.get<int64_t>()));
    }
  }
  return request;
}

}  // namespace

Result<std::vector<SimRequest>> ParseSimTrace(const std::string& file, std::string_view text) {
  std::vector<SimRequest> trace;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (trace.size() >= kMostSimRequests) return InvalidInput(fmt::format("{}: more than {} requests", file, kMostSimRequests));
    HONE_TRY(SimRequest request, Parse(line).Context(fmt::format("{}: line {}", file, number)));
    trace.push_back(std::move(request));
  }
  if (trace.empty()) return InvalidInput(file + ": holds no requests");
  std::stable_sort(trace.begin(), trace.end(), [](const SimRequest& a, const SimRequest& b) { return a.at_s < b.at_s; });
  return trace;
}

std::vector<SimRequest> PoissonTrace(double rate, int count, int input, int output, double range, uint64_t seed) {
  Rng rng(seed);
  std::vector<SimRequest> trace(count);
  double now = 0;
  const auto length = [&](int mean) {
    const double low = mean * (1 - range), high = mean * (1 + range);
    return std::max(1, static_cast<int>(std::lround(low + (high - low) * rng.Uniform())));
  };
  for (SimRequest& request : trace) {
    now += -std::log(1 - rng.Uniform()) / rate;
    request.at_s = now;
    request.input = length(input);
    request.output = length(output);
  }
  return trace;
}

}  // namespace hone
