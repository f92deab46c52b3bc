// A model that breaks at one word: a copy of the built-in draft model in whose input embedding the row of one token is not a
// number. Texts without the token get the draft model's logits; from the token on a sequence's are NaN. The output matrix,
// which the draft model shares with the embedding, is made a tensor of its own, so that nothing else changes.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "e2e/program.h"

namespace hone::e2e {

// The folder of the model; `token` is the one that breaks it.
inline std::string WriteBrokenModel(const std::string& folder, int token) {
  namespace fs = std::filesystem;
  using nlohmann::ordered_json;
  fs::remove_all(folder);
  fs::copy(HONE_SOURCE_DIR "/assets/builtin/draft", folder);
  for (const auto& entry : fs::directory_iterator(folder)) fs::permissions(entry.path(), fs::perms::owner_all);
  ordered_json config = ordered_json::parse(ReadAll(folder + "/config.json"));
  config["tie_word_embeddings"] = false;
  std::ofstream(folder + "/config.json") << config.dump();
  const std::string weights = folder + "/model.safetensors", bytes = ReadAll(weights);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  ordered_json header = ordered_json::parse(bytes.substr(8, header_bytes));
  std::string data = bytes.substr(8 + header_bytes);
  const ordered_json embedding = header["model.embed_tokens.weight"];
  const size_t begin = embedding["data_offsets"][0], end = embedding["data_offsets"][1];
  const size_t row = (end - begin) / embedding["shape"][0].get<size_t>();
  header["lm_head.weight"] = {{"dtype", embedding["dtype"]}, {"shape", embedding["shape"]}, {"data_offsets", {data.size(), data.size() + end - begin}}};
  data += data.substr(begin, end - begin);
  for (size_t i = 0; i < row; ++i) data[begin + static_cast<size_t>(token) * row + i] = i % 2 == 0 ? '\xff' : '\x7f';  // NaN in BF16
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  header_bytes = text.size();
  std::ofstream out(weights, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  out << text << data;
  return folder;
}

}  // namespace hone::e2e
