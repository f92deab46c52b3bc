// For tests: an Engine that plays scripts from its own thread, a byte tokenizer, and a blocking HTTP client.
//
// FakeEngine: the prompt's text decides what a sequence does (see FakeEngine::Script). Tokens are bytes: id b is byte b,
// kFakeBos and kFakeEnd are special.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "serve/json_writer.h"

namespace hone {

inline constexpr int32_t kFakeBos = 256, kFakeEnd = 257, kFakeVocab = 258;

class FakeChatTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special) ids.push_back(kFakeBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id);
    return RepairUtf8(text);
  }
  std::string_view kind() const override { return "bpe"; }
  int vocab_size() const override { return kFakeVocab; }
  std::optional<int32_t> bos() const override { return kFakeBos; }
  std::optional<int32_t> eos() const override { return kFakeEnd; }
  std::optional<int32_t> unk() const override { return {}; }
  std::optional<int32_t> pad() const override { return {}; }
  std::vector<int32_t> end_ids() const override { return {kFakeEnd}; }
  bool adds_bos() const override { return true; }
  bool adds_eos() const override { return false; }
  // The marks of Mistral are special tokens, as they are there.
  std::optional<int32_t> TokenId(std::string_view text) const override {
    return text == "[TOOL_CALLS]" ? std::optional(kFakeEnd) : std::nullopt;
  }
  std::string TokenText(int32_t id) const override { return TokenBytes(id); }
  std::string TokenBytes(int32_t id) const override { return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : ""; }
  bool IsSpecial(int32_t id) const override { return id >= 256; }
  bool IsValid(int32_t id) const override { return id >= 0 && id < kFakeVocab; }

 protected:
  std::unique_ptr<Stream> OpenStream(bool, bool) const override { return nullptr; }
};

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(int context = 1000) {
    options_.context = context;
    options_.max_queue = 1000;
    config_.name = "fake";
    config_.width = 4;
  }
  ~FakeEngine() override { Stop(); }

  // What the text of a prompt asks for, by the first word of this list that it contains:
  //   "full"     Submit fails with kLimit            "crash"    after three tokens the sequence ends with kError
  //   "endless"  tokens until cancelled              "hold"     nothing until cancelled or released
  //   "huge"     like endless, 64 KiB a token        "emoji"    text whose characters take several tokens
  //   "say"      the tokens given to Say, then stop, or "length" at max_tokens
  //   "late"     kError for its time in the queue
  //   "slow"     kError for its whole time           "nan"      kError without a token left
  // Otherwise "w0 w1 w2 ..." one word a token, "stop" after ten, or "length" at max_tokens.
  Result<SequenceId> Submit(SequenceRequest request, EventCallback callback) override {
    std::string text;
    for (const int32_t id : request.prompt) text += tokenizer_.TokenBytes(id);
    if (text.find("full") != std::string::npos) return Error{ErrorCode::kLimit, "the queue is full (1000 waiting)"};
    std::lock_guard lock(mutex_);
    if (fail_after_ >= 0 && fail_after_-- == 0) return Error{ErrorCode::kLimit, "the queue is full (1000 waiting)"};
    const SequenceId id = next_id_++;
    requests_.push_back(request);
    sequences_[id] = {std::move(request), std::move(callback), std::move(text), 0};
    wake_.notify_all();
    return id;
  }

  // Paths that begin with "bad" are no adapters.
  Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& path) const override {
    if (path.starts_with("bad")) return InvalidInput(path + ": the script says that it does not fit");
    return std::make_shared<const Adapter>(AdapterInfo{path, "content of " + path, this, 1000, 8, 14});
  }

  void Cancel(SequenceId id) override {
    std::lock_guard lock(mutex_);
    cancel_calls_.insert(id);
    cancels_.insert(id);
    wake_.notify_all();
  }

  // One token of every sequence.
  bool Step() override {
    std::vector<std::pair<EventCallback, SequenceEvent>> out;
    {
      std::lock_guard lock(mutex_);
      for (const SequenceId id : cancels_) {
        if (const auto it = sequences_.find(id); it != sequences_.end()) {
          out.emplace_back(it->second.callback, SequenceEvent{.id = id, .finish = FinishReason::kCancelled});
          sequences_.erase(it);
        }
      }
      cancels_.clear();
      for (auto it = sequences_.begin(); it != sequences_.end();) {
        SequenceEvent event;
        event.id = it->first;
        const bool some = Next(it->second, &event);
        const EventCallback callback = it->second.callback;
        const bool ended = event.finish != FinishReason::kNone;
        it = ended ? sequences_.erase(it) : std::next(it);
        if (some) out.emplace_back(callback, std::move(event));
      }
    }
    for (const auto& [callback, event] : out) callback(event);
    return !out.empty();
  }

  void Start() override {
    thread_ = std::thread([this] {
      while (!stop_) {
        if (Step()) {
          // A step of a real engine takes time. Without a pause a reader that the machine lets wait would be a slow one.
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          continue;
        }
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, std::chrono::milliseconds(1));
      }
    });
  }
  void Stop() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    for (const auto& [id, sequence] : std::exchange(sequences_, {})) {
      sequence.callback(SequenceEvent{.id = id, .finish = FinishReason::kCancelled});
    }
  }

  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.running = static_cast<int>(sequences_.size());
    return stats;
  }
  const ModelConfig& model_config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const EngineOptions& options() const override { return options_; }

  // For tests.
  void Say(std::vector<std::string> tokens) {
    std::lock_guard lock(mutex_);
    say_ = std::move(tokens);
  }
  void SetStats(const EngineStats& stats) {
    std::lock_guard lock(mutex_);
    stats_ = stats;
  }
  std::vector<SequenceRequest> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  SequenceRequest last() const { return requests().back(); }
  int running() const { return stats().running; }
  void ReleaseHeld() { released_ = true; }
  void LimitSequences(int max_sequences, int max_queue) {  // before requests come
    options_.max_sequences = max_sequences;
    options_.max_queue = max_queue;
  }
  void FailAfter(int submits) {
    std::lock_guard lock(mutex_);
    fail_after_ = submits;
  }
  size_t cancel_calls() const {
    std::lock_guard lock(mutex_);
    return cancel_calls_.size();
  }

 private:
  struct Sequence {
    SequenceRequest request;
    EventCallback callback;
    std::string text;
    int produced = 0;
    bool Says(const char* word) const { return text.find(word) != std::string::npos; }
  };

  bool Next(Sequence& sequence, SequenceEvent* event) {
    if (sequence.Says("hold") && !released_) return false;
    const int i = sequence.produced++;
    event->prompt_tokens = static_cast<int>(sequence.request.prompt.size());
    if (i == 0 && sequence.request.prompt_logprobs >= 0) {
      for (size_t k = 1; k < sequence.request.prompt.size(); ++k) {
        TokenResult token{.id = sequence.request.prompt[k], .logprob = -0.25f};
        for (int best = 0; best < sequence.request.prompt_logprobs; ++best) token.top.push_back({'a' + best, -0.125f});
        event->prompt_logprobs.push_back(std::move(token));
      }
    }
    if (sequence.request.prompt_only) {
      event->finish = FinishReason::kStop;
      if (sequence.request.pooling == Pooling::kMean) event->embedding = {0.6f, 0.8f, 0, 0};
      if (sequence.request.pooling == Pooling::kLast) event->embedding = {0, 0, 0, 1};
      return true;
    }
    if (sequence.Says("late") || sequence.Says("slow") || sequence.Says("nan")) {
      event->finish = FinishReason::kError;
      event->cause = sequence.Says("late") ? EndCause::kQueueTime : sequence.Says("slow") ? EndCause::kRequestTime : EndCause::kLogits;
      event->error = "the script says so";
      return true;
    }
    if (sequence.Says("say")) {
      if (i < static_cast<int>(say_.size())) {
        event->text = say_[static_cast<size_t>(i)];
        event->tokens.push_back({.id = 'w', .bytes = event->text, .logprob = -0.5f});
      }
      event->output_tokens = sequence.produced;
      if (i + 1 >= static_cast<int>(say_.size())) event->finish = FinishReason::kStop;
      else if (sequence.produced == sequence.request.max_tokens) event->finish = FinishReason::kLength;
      return true;
    }
    std::string bytes = "w" + std::to_string(i) + " ";
    if (sequence.Says("huge")) bytes = std::string(64 << 10, 'x');
    event->text = bytes;
    if (sequence.Says("emoji")) {  // each character is two tokens; its text comes with the second
      bytes = i % 2 == 0 ? "\xF0\x9F" : "\x98\x80";
      event->text = i % 2 == 0 ? "" : "\xF0\x9F\x98\x80";
    }
    TokenResult token;
    token.id = 'w';
    token.bytes = bytes;
    token.logprob = -0.5f - 0.125f * static_cast<float>(sequence.request.sampling.seed.value_or(0) % 4);
    for (int k = 0; k < sequence.request.logprobs; ++k) token.top.push_back({'a' + k, -0.5f - static_cast<float>(k)});
    event->tokens.push_back(std::move(token));
    event->cached_tokens = 2;
    event->output_tokens = sequence.produced;
    event->seed = sequence.request.sampling.seed.value_or(12345);
    const bool forever = sequence.Says("endless") || sequence.Says("huge");
    if (sequence.Says("crash") && sequence.produced == 3) {
      event->finish = FinishReason::kError;
      event->error = "the script says so";
    } else if (!forever && sequence.produced == sequence.request.max_tokens) {
      event->finish = FinishReason::kLength;
    } else if (!forever && sequence.produced == 10) {
      event->finish = FinishReason::kStop;
    }
    return true;
  }

  FakeChatTokenizer tokenizer_;
  ModelConfig config_;
  EngineOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<SequenceRequest> requests_;
  std::set<SequenceId> cancels_, cancel_calls_;
  SequenceId next_id_ = 1;
  std::vector<std::string> say_;
  EngineStats stats_;
  int fail_after_ = -1;
  std::atomic<bool> stop_{false}, released_{false};
  std::thread thread_;
};

// True once `condition` holds; waits up to a generous half minute.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

struct ClientResponse {
  int status = 0;
  std::string head;     // status line and headers
  std::string body;     // chunks joined
  bool chunked = false, complete = false;

  std::string header(const std::string& name) const {
    std::string lower = head;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const size_t at = lower.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  // The payloads of "data: " lines.
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
      const size_t end = body.find("\n\n", at);
      out.push_back(body.substr(at + 6, end - at - 6));
      at = end;
    }
    return out;
  }
};

// A blocking client; every wait gives up after half a minute.
class TestClient {
 public:
  explicit TestClient(int port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval wait{30, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() { Close(); }
  TestClient(const TestClient&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void Reset() {  // RST instead of FIN
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    Close();
  }
  void ShutdownWrite() { ::shutdown(fd_, SHUT_WR); }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // False at the end, on an error or after the wait.
  bool Receive() {
    char chunk[16 << 10];
    const ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    in_.append(chunk, static_cast<size_t>(n));
    return true;
  }
  // Everything until the server closes.
  std::string ReadAll() {
    while (Receive()) {}
    return std::exchange(in_, {});
  }
  // Until `text` was received; it stays in the buffer.
  bool ReadUntil(std::string_view text) {
    while (in_.find(text) == std::string::npos) {
      if (!Receive()) return false;
    }
    return true;
  }
  const std::string& buffered() const { return in_; }

  static std::string Format(std::string_view method, std::string_view path, std::string_view body, std::string_view headers = "") {
    std::string out = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers);
    if (!body.empty() || method == "POST") {
      if (headers.find("Content-Type") == std::string_view::npos) out += "Content-Type: application/json\r\n";
      out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    return out + "\r\n" + std::string(body);
  }

  ClientResponse Call(std::string_view method, std::string_view path, std::string_view body = "", std::string_view headers = "") {
    Send(Format(method, path, body, headers));
    return ReadResponse(method == "HEAD");
  }

  ClientResponse ReadResponse(bool head_only = false) {
    ClientResponse response;
    if (!ReadUntil("\r\n\r\n")) return response;
    const size_t end = in_.find("\r\n\r\n");
    response.head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    response.status = std::atoi(response.head.c_str() + std::strlen("HTTP/1.1 "));
    response.chunked = response.header("transfer-encoding") == "chunked";
    if (head_only || response.status == 204 || response.status == 100) {
      response.complete = true;
    } else if (response.chunked) {
      while (ReadChunk(&response)) {}
    } else if (const std::string length = response.header("content-length"); !length.empty()) {
      const size_t want = std::stoul(length);
      while (in_.size() < want && Receive()) {}
      response.complete = in_.size() >= want;
      response.body = in_.substr(0, want);
      in_.erase(0, want);
    } else {
      response.body = ReadAll();
      response.complete = true;
    }
    return response;
  }

 private:
  bool ReadChunk(ClientResponse* response) {
    if (!ReadUntil("\r\n")) return false;
    const size_t line = in_.find("\r\n");
    const size_t size = std::stoul(in_.substr(0, line), nullptr, 16);
    while (in_.size() < line + 2 + size + 2) {
      if (!Receive()) return false;
    }
    response->body += in_.substr(line + 2, size);
    in_.erase(0, line + 2 + size + 2);
    response->complete = size == 0;
    return size != 0;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string in_;
};

}  // namespace hone
