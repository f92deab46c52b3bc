// For tests: a model and a tokenizer small enough to follow. The model writes every token's id and position into the
// cache of all layers and heads and computes its logits from nothing but what it reads back there, as a hash of the
// sequence. So any mistake in block tables, positions, ownership or recompute changes what it says.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "models/model.h"
#include "tensor/float16.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace hone {

inline constexpr int kFakeVocab = 48;
inline constexpr int kFakeWidth = 4;
inline constexpr int32_t kFakeEnd = 0;     // ends a generation
inline constexpr int32_t kFakePoison = 1;  // once it is in a sequence, all logits are NaN

class FakeModel final : public Model {
 public:
  explicit FakeModel(int context = 256, int max_rows = 64) {
    config_.family = "fake";
    config_.layers = 2;
    config_.kv_heads = 2;
    config_.head_width = 3;
    config_.width = kFakeWidth;
    config_.vocab = kFakeVocab;
    config_.context = context;
    options_.max_rows = max_rows;
  }

  uint64_t weight_bytes() const override { return 0; }

  // An adapter is a number, its path; it changes what is written into the cache. Others are errors.
  Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& path) const override {
    const int number = std::atoi(path.c_str());
    if (number < 1 || number > 9) return InvalidInput(path + ": is no fake adapter");
    return std::shared_ptr<const Adapter>(std::make_shared<FakeAdapter>(AdapterInfo{path, "content " + path, this}, number));
  }

  // What the model says after `tokens`, without any cache.
  static std::vector<float> LogitsAfter(std::span<const int32_t> tokens, int adapter = 0) {
    uint64_t hash = 1;
    bool poisoned = false;
    for (const int32_t id : tokens) {
      hash = Mix(hash, static_cast<uint64_t>(id + adapter * kFakeVocab));
      poisoned = poisoned || id == kFakePoison;
    }
    std::vector<float> logits(kFakeVocab);
    FillLogits(hash, poisoned, logits.data());
    return logits;
  }

  // Its final hidden state at the last of `tokens`, without any cache.
  static std::vector<float> StateAfter(std::span<const int32_t> tokens) {
    uint64_t hash = 1;
    for (const int32_t id : tokens) hash = Mix(hash, static_cast<uint64_t>(id));
    std::vector<float> state(kFakeWidth);
    FillState(hash, state.data());
    return state;
  }

  void Forward(const ForwardBatch& batch, const KvLayers& kv, float* logits, const StateObserver* states) override {
    std::vector<float> state_rows(states != nullptr ? batch.tokens.size() * kFakeWidth : 0);
    HONE_CHECK(static_cast<int>(batch.tokens.size()) <= options_.max_rows);
    size_t row = 0, next_logits = 0;
    for (const SequenceRows& rows : batch.sequences) {
      HONE_CHECK(static_cast<size_t>(rows.first_row) == row && rows.rows > 0);
      HONE_CHECK(rows.first_position + rows.rows <= rows.final_length && rows.final_length <= config_.context);
      const int more = rows.adapter != nullptr ? kFakeVocab * static_cast<const FakeAdapter*>(rows.adapter)->number() : 0;
      for (int i = 0; i < rows.rows; ++i) Write(kv, rows.blocks, rows.first_position + i, batch.tokens[row + i] + more);
      for (int i = 0; i < rows.rows; ++i, ++row) {
        bool ignored = false;
        if (states != nullptr) {
          FillState(Read(kv, rows.blocks, rows.first_position + i + 1, &ignored), &state_rows[row * kFakeWidth]);
        }
        if (next_logits == batch.logit_rows.size() || batch.logit_rows[next_logits] != static_cast<int32_t>(row))
          continue;
        bool poisoned = false;
        const uint64_t hash = Read(kv, rows.blocks, rows.first_position + i + 1, &poisoned);
        FillLogits(hash, poisoned, logits + next_logits++ * kFakeVocab);
      }
    }
    HONE_CHECK(row == batch.tokens.size() && next_logits == batch.logit_rows.size());
    if (states != nullptr) (*states)(config_.layers + 1, state_rows.data());
  }

 private:
  class FakeAdapter final : public Adapter {
   public:
    FakeAdapter(AdapterInfo info, int number) : Adapter(std::move(info)), number_(number) {}
    int number() const { return number_; }

   private:
    const int number_;
  };

  static uint64_t Mix(uint64_t hash, uint64_t value) { return Rng(hash * 0x9e3779b97f4a7c15 + value).Next(); }

  static void FillState(uint64_t hash, float* state) {
    Rng rng(hash);
    for (int i = 0; i < kFakeWidth; ++i) state[i] = static_cast<float>(rng.Uniform() - 0.3);
  }

  static void FillLogits(uint64_t hash, bool poisoned, float* logits) {
    Rng rng(hash);
    for (int id = 0; id < kFakeVocab; ++id) logits[id] = static_cast<float>(8 * rng.Uniform());
    logits[kFakePoison] = -30;
    for (int id = 0; poisoned && id < kFakeVocab; ++id) logits[id] = NAN;
  }

  // Element i of the key (transposed in its block) or value of a position.
  static std::byte* Element(const KvView& view, bool key, int head, int position, int i) {
    const int block = position / kKvBlockTokens, row = position % kKvBlockTokens;
    const size_t bytes = KvElementBytes(view.type);
    return key ? view.KeyBlock(head, block) + bytes * (i * kKvBlockTokens + row)
               : view.ValueBlock(head, block) + bytes * (row * view.head_width + i);
  }
  static void Put(const KvView& view, std::byte* element, float value) {
    const uint16_t half = F32ToF16(value);
    if (view.type == KvType::kF32) {
      std::memcpy(element, &value, sizeof value);
    } else {
      std::memcpy(element, &half, sizeof half);
    }
  }
  static float At(const KvView& view, const std::byte* element) {
    float value = 0;
    uint16_t half = 0;
    if (view.type == KvType::kF32) {
      std::memcpy(&value, element, sizeof value);
    } else {
      std::memcpy(&half, element, sizeof half);
      value = F16ToF32(half);
    }
    return value;
  }

  void Write(const KvLayers& kv, const int32_t* blocks, int position, int32_t id) const {
    for (int layer = 0; layer < config_.layers; ++layer) {
      const KvView view = kv.View(layer, blocks);
      for (int head = 0; head < config_.kv_heads; ++head) {
        const float place = static_cast<float>(layer * config_.kv_heads + head);
        const float values[] = {static_cast<float>(id), static_cast<float>(position), place};
        for (int i = 0; i < 3; ++i) {
          Put(view, Element(view, true, head, position, i), values[i]);
          Put(view, Element(view, false, head, position, i), values[i]);
        }
      }
    }
  }

  uint64_t Read(const KvLayers& kv, const int32_t* blocks, int length, bool* poisoned) const {
    uint64_t hash = 1;
    for (int position = 0; position < length; ++position) {
      int32_t id = -1;
      for (int layer = 0; layer < config_.layers; ++layer) {
        const KvView view = kv.View(layer, blocks);
        for (int head = 0; head < config_.kv_heads; ++head) {
          const float place = static_cast<float>(layer * config_.kv_heads + head);
          for (const bool key : {true, false}) {
            const auto at = [&](int i) { return At(view, Element(view, key, head, position, i)); };
            const int32_t here = static_cast<int32_t>(at(0));
            const bool right = at(1) == static_cast<float>(position) && at(2) == place;
            if (!right || (id >= 0 && here != id)) hash = Mix(hash, 0xbad);
            id = here;
          }
        }
      }
      hash = Mix(hash, static_cast<uint64_t>(id));
      *poisoned = *poisoned || id % kFakeVocab == kFakePoison;
    }
    return hash;
  }
};

// Ids 2..25 are letters, then a space, a newline, and pieces of characters of two, three and four bytes.
class FakeTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const char byte : text) ids.push_back(2 + static_cast<unsigned char>(byte) % 24);
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids, bool) const override {
    std::string bytes;
    for (const int32_t id : ids) bytes += TokenBytes(id);
    return ToValidUtf8(bytes);
  }
  std::string_view kind() const override { return "fake"; }
  int vocab_size() const override { return kFakeVocab; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return kFakeEnd; }
  std::optional<int32_t> unk() const override { return std::nullopt; }
  std::optional<int32_t> pad() const override { return std::nullopt; }
  std::vector<int32_t> end_ids() const override { return {kFakeEnd}; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  std::optional<int32_t> TokenId(std::string_view) const override { return std::nullopt; }
  std::string TokenText(int32_t id) const override { return TokenBytes(id); }
  std::string TokenBytes(int32_t id) const override {
    if (id < 2 || id >= kFakeVocab) return "";
    if (id < 26) return std::string(1, static_cast<char>('a' + id - 2));
    static constexpr const char* kPieces[] = {" ",    "\n",       "\xC3",     "\xA9", "\xE4\xBD",
                                              "\xA0", "\xF0\x9F", "\xA6\x99", "ab"};
    const int piece = id - 26;
    return piece < 9 ? kPieces[piece] : std::string(1, static_cast<char>('A' + piece - 9));
  }
  bool IsSpecial(int32_t id) const override { return id == kFakeEnd; }
  bool IsValid(int32_t id) const override { return id >= 0 && id < kFakeVocab; }

 protected:
  std::unique_ptr<Stream> OpenStream(bool, bool) const override {
    class Bytes final : public Stream {
     public:
      explicit Bytes(const FakeTokenizer* tokenizer) : tokenizer_(tokenizer) {}
      void Push(int32_t id, std::string* out) override { assembler_.Push(tokenizer_->TokenBytes(id), out); }
      void Finish(std::string* out) override { assembler_.Finish(out); }

     private:
      const FakeTokenizer* tokenizer_;
      Utf8Assembler assembler_;
    };
    return std::make_unique<Bytes>(this);
  }
};

}  // namespace hone
