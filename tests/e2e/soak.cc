// A server left running under mixed traffic: good requests, clients that leave, bytes that are no JSON or no UTF-8, prompts that
// are too long, readers that do not read. Every answer must be one that is expected, memory must stay flat, and at the end
// nothing may be left: no running sequence, no used block, no connection, exit code 0.
//
// soak [--seconds N | --minutes N] [--model MODEL] [--seed N] [--slow-client S] [--program HONE]: 20 s of the built-in model by
// default, which ctest runs. S should be longer than the machine may let the whole program wait.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/sanitizer.h"

namespace hone {
namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;

double Now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// hone serve on a free port; its log goes where this program's stderr goes.
class ServerProcess {
 public:
  ServerProcess(const std::string& program, const std::string& model, const std::string& slow_client_s, int alarm_s) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      alarm(static_cast<unsigned>(alarm_s));  // nothing may leave a server behind
      execl(program.c_str(), program.c_str(), "serve", model.c_str(), "--port", "0", "--ctx", "1024", "--max-sequences", "6", "--max-queue",
            "24", "--kv-bytes", "24MiB", "--slow-client", slow_client_s.c_str(), "--request-timeout", "600", "--step-ms", "20", nullptr);
      _exit(127);
    }
    close(ends[1]);
    std::string line;
    char c = 0;
    while (read(ends[0], &c, 1) == 1 && c != '\n') line += c;
    const std::string before = "http://127.0.0.1:";
    const size_t at = line.find(before);
    if (at != std::string::npos) port_ = std::atoi(line.c_str() + at + before.size());
    else std::fprintf(stderr, "%s\n", line.c_str());
    drain_ = std::thread([fd = ends[0]] {
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) (void)!write(STDERR_FILENO, buffer, static_cast<size_t>(n));
      close(fd);
    });
  }
  ~ServerProcess() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    if (drain_.joinable()) drain_.join();
  }
  ServerProcess(const ServerProcess&) = delete;

  int port() const { return port_; }
  double resident_mib() const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
    }
    return 0;
  }
  int files() const {
    std::error_code error;
    int count = 0;
    for (std::filesystem::directory_iterator it("/proc/" + std::to_string(pid_) + "/fd", error), end; !error && it != end; it.increment(error)) ++count;
    return count;
  }
  int Stop() {
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
  std::thread drain_;
};

class Connection {
 public:
  explicit Connection(int port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    const timeval wait{600, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;

  bool Send(const std::string& bytes) const {
    for (size_t sent = 0; connected_ && sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<size_t>(n);
      else if (errno != EINTR) return false;
    }
    return connected_;
  }
  // Up to `most` more bytes; false at the end.
  bool Receive(size_t most = 65536) {
    char buffer[65536];
    ssize_t n = 0;
    do {
      n = recv(fd_, buffer, std::min(most, sizeof buffer), 0);
    } while (n < 0 && errno == EINTR);  // a wait with a limit ends so when the program is stopped and goes on
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  void ReadAll() {
    while (Receive()) {
    }
  }
  void Reset() const {  // the connection ends with an error instead of an end
    const linger hard{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  }
  const std::string& text() const { return text_; }
  int status() const { return text_.size() > 12 ? std::atoi(text_.c_str() + 9) : 0; }
  std::string body() const {
    const size_t end = text_.find("\r\n\r\n");
    return end == std::string::npos ? "" : text_.substr(end + 4);
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
  std::string text_;
};

std::string Request(const std::string& path, const std::string& body, const std::string& method = "POST") {
  return method + " " + path + " HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// What clients do, and what they may be told. One object for all threads.
class Traffic {
 public:
  Traffic(int port, std::string model) : port_(port), model_(std::move(model)) {}

  // One thing that a client does; chosen by `rng`.
  void Act(Rng& rng) {
    static constexpr struct {
      const char* name;
      int weight;
      void (Traffic::*act)(Rng& rng, const char* name);
    } kActions[] = {
        {"whole", 20, &Traffic::Whole},          {"stream", 20, &Traffic::Stream},         {"several", 6, &Traffic::Several},
        {"leave", 16, &Traffic::Leave},          {"half a request", 6, &Traffic::Half},    {"bad json", 8, &Traffic::BadJson},
        {"bad utf-8", 6, &Traffic::BadUtf8},     {"too long", 6, &Traffic::TooLong},       {"wrong field", 5, &Traffic::WrongField},
        {"embeddings", 5, &Traffic::Embeddings}, {"slow reader", 2, &Traffic::SlowReader}, {"look", 5, &Traffic::Look},
        {"by a schema", 6, &Traffic::BySchema},  {"a call", 4, &Traffic::MustCall},
    };
    int total = 0;
    for (const auto& action : kActions) total += action.weight;
    int at = static_cast<int>(rng.Below(static_cast<uint64_t>(total)));
    for (const auto& action : kActions) {
      if ((at -= action.weight) < 0) return (this->*action.act)(rng, action.name);
    }
  }

  // Prompts that fill the KV cache once, so that its memory is all there before it is looked at.
  void Fill(Rng& rng) {
    for (int i = 0; i < 8; ++i) {
      json ids = json::array();
      while (ids.size() < 1000) ids.push_back(300 + rng.Below(1000));
      Connection connection(port_);
      connection.Send(Request("/v1/completions", json{{"model", model_}, {"prompt", ids}, {"max_tokens", 1}}.dump()));
      connection.ReadAll();
      Expect(connection, "fill", {200});
    }
  }

  int problems() const { return problems_; }
  uint64_t actions() const { return actions_; }
  void Print() {
    std::lock_guard lock(mutex_);
    for (const auto& [what, count] : counts_) std::printf("  %-28s %8llu\n", what.c_str(), static_cast<unsigned long long>(count));
  }

 private:
  json Chat(Rng& rng, int most_words, int most_tokens) const {
    std::string text;
    for (uint64_t i = rng.Below(static_cast<uint64_t>(most_words)) + 1; i > 0; --i) {
      static constexpr const char* kWords[] = {"fox", "lamp", "river", "blue", "\xC3\xA9t\xC3\xA9", "\xF0\x9F\xA6\x8A", "seven", "and", "7,", "?"};
      text += std::string(kWords[rng.Below(10)]) + " ";
    }
    return {{"model", model_}, {"max_tokens", 1 + rng.Below(static_cast<uint64_t>(most_tokens))}, {"messages", {{{"role", "user"}, {"content", text}}}}};
  }

  // The answer's status is one of these, or the answer is a problem. Load (429) is always allowed.
  void Expect(const Connection& connection, const char* name, std::initializer_list<int> wanted) {
    const int status = connection.status();
    const bool fine = status == 429 || std::find(wanted.begin(), wanted.end(), status) != wanted.end();
    Count(std::string(name) + " " + std::to_string(status));
    if (!fine) Problem(std::string(name) + ": " + connection.text().substr(0, 400));
    if (!fine || status < 400) return;
    const json body = json::parse(connection.body(), nullptr, false);
    if (!body.is_object() || !body.contains("error") || !body["error"]["message"].is_string()) Problem(std::string(name) + ": no error object: " + connection.text());
  }
  void Count(const std::string& what) {
    std::lock_guard lock(mutex_);
    ++counts_[what];
    ++actions_;
  }
  void Problem(const std::string& what) {
    std::lock_guard lock(mutex_);
    if (++problems_ <= 20) std::fprintf(stderr, "soak: problem: %s\n", what.c_str());
  }

  void Whole(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = Chat(rng, 60, 60);
    if (rng.Below(4) == 0) body["logprobs"] = true, body["top_logprobs"] = 3;
    if (rng.Below(4) == 0) body["stop"] = {"the", "e"};
    connection.Send(Request("/v1/chat/completions", body.dump()));
    connection.ReadAll();
    Expect(connection, name, {200});
    if (connection.status() == 200 && !json::parse(connection.body(), nullptr, false).is_object()) Problem("no JSON: " + connection.text());
  }
  void Stream(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = Chat(rng, 40, 100);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    connection.Send(Request("/v1/chat/completions", body.dump()));
    connection.ReadAll();
    Expect(connection, name, {200});
    if (connection.status() == 200 && !connection.text().ends_with("data: [DONE]\n\n")) Problem("a stream without an end: " + connection.text());
  }
  void Several(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = {{"model", model_}, {"prompt", {"Once", "There was a fox"}}, {"n", 1 + rng.Below(3)}, {"max_tokens", 20}, {"echo", rng.Below(2) == 0}};
    if (rng.Below(2) == 0) body["prompt_logprobs"] = 2;
    connection.Send(Request("/v1/completions", body.dump()));
    connection.ReadAll();
    Expect(connection, name, {200});
  }
  // Schemas that differ, so that grammars are made and forgotten.
  void BySchema(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = Chat(rng, 20, 80);
    json text = {{"type", "string"}, {"maxLength", 1 + rng.Below(40)}};
    if (rng.Below(3) == 0) text = {{"type", "string"}, {"pattern", "^[a-z]{1," + std::to_string(1 + rng.Below(40)) + "}( [a-z]+)?$"}};
    const json schema = {{"type", "object"}, {"properties", {{"a", text}, {"b", {{"type", "array"}, {"items", text}, {"maxItems", 4}}}}}, {"required", {"a", "b"}}, {"additionalProperties", false}};
    body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "s"}, {"schema", schema}}}};
    body["temperature"] = 1.5;
    connection.Send(Request("/v1/chat/completions", body.dump()));
    connection.ReadAll();
    Expect(connection, name, {200});
    if (connection.status() != 200) return;
    const json choice = json::parse(connection.body(), nullptr, false)["choices"][0];
    const json value = json::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
    if (choice["finish_reason"] == "stop" && !(value.is_object() && value.size() == 2 && value["b"].is_array())) Problem("not by its schema: " + connection.text());
  }
  void MustCall(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = Chat(rng, 20, 80);
    body["tools"] = {{{"type", "function"}, {"function", {{"name", "look"}, {"parameters", {{"type", "object"}, {"additionalProperties", {{"type", "integer"}}}}}}}}};
    body["tool_choice"] = "required";
    connection.Send(Request("/v1/chat/completions", body.dump()));
    connection.ReadAll();
    Expect(connection, name, {200});
    if (connection.status() != 200) return;
    const json choice = json::parse(connection.body(), nullptr, false)["choices"][0];
    if (choice["finish_reason"] == "stop") Problem("no call: " + connection.text());
  }
  // Goes away at any moment: before, between and after tokens, politely or not.
  void Leave(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = Chat(rng, 200, 400);
    body["stream"] = rng.Below(4) != 0;
    body["ignore_eos"] = true;
    connection.Send(Request("/v1/chat/completions", body.dump()));
    for (uint64_t i = rng.Below(6); i > 0 && connection.Receive(1 + rng.Below(2000)); --i) {
    }
    if (rng.Below(2) == 0) connection.Reset();
    Count(name);
  }
  void Half(Rng& rng, const char* name) {
    Connection connection(port_);
    const std::string request = Request("/v1/chat/completions", Chat(rng, 30, 5).dump());
    connection.Send(request.substr(0, rng.Below(request.size())));
    Count(name);
  }
  void BadJson(Rng& rng, const char* name) {
    Connection connection(port_);
    std::string body = Chat(rng, 30, 5).dump();
    switch (rng.Below(4)) {
      case 0: body.resize(rng.Below(body.size())); break;
      case 1: body.insert(rng.Below(body.size()), "}"); break;
      case 2: body = std::string(rng.Below(3000) + 65, '['); break;
      default: body = "\"" + body; break;
    }
    connection.Send(Request("/v1/chat/completions", body));
    connection.ReadAll();
    Expect(connection, name, {400, 200, 404});  // a brace within the text harms nothing, within the model's name it is another one
  }
  void BadUtf8(Rng& rng, const char* name) {
    Connection connection(port_);
    std::string body = R"({"model":")" + model_ + R"(","messages":[{"role":"user","content":"a)";
    for (uint64_t i = rng.Below(20); i > 0; --i) body += static_cast<char>(rng.Next());
    body += "\xFF\"}],\"max_tokens\":3}";
    connection.Send(Request("/v1/chat/completions", body));
    connection.ReadAll();
    Expect(connection, name, {400});
  }
  void TooLong(Rng& rng, const char* name) {
    Connection connection(port_);
    std::string text;
    for (uint64_t i = 2000 + rng.Below(20000); i > 0; --i) text += "word ";
    connection.Send(Request("/v1/completions", json{{"model", model_}, {"prompt", text}}.dump()));
    connection.ReadAll();
    Expect(connection, name, {400});
  }
  void WrongField(Rng& rng, const char* name) {
    Connection connection(port_);
    json body = Chat(rng, 10, 5);
    if (rng.Below(2) == 0) body["temprature"] = 1;
    else body["temperature"] = "hot";
    connection.Send(Request("/v1/chat/completions", body.dump()));
    connection.ReadAll();
    Expect(connection, name, {400});
  }
  void Embeddings(Rng& rng, const char* name) {
    Connection connection(port_);
    std::vector<std::string> inputs(1 + rng.Below(6), "a text");
    for (std::string& input : inputs) input += std::to_string(rng.Next());
    connection.Send(Request("/v1/embeddings", json{{"model", model_}, {"input", inputs}}.dump()));
    connection.ReadAll();
    Expect(connection, name, {200});
  }
  // Asks for more than the socket holds and reads little of it, or nothing for a while.
  void SlowReader(Rng& rng, const char* name) {
    Connection connection(port_, 2048);
    json body = Chat(rng, 4, 400);
    body["stream"] = true, body["ignore_eos"] = true, body["n"] = 2, body["logprobs"] = true, body["top_logprobs"] = 20;
    connection.Send(Request("/v1/chat/completions", body.dump()));
    for (int i = 0; i < 4 && connection.Receive(64); ++i) std::this_thread::sleep_for(Seconds(0.2 + rng.Uniform()));
    Count(name);
  }
  void Look(Rng& rng, const char* name) {
    static constexpr const char* kPaths[] = {"/metrics", "/v1/models", "/health", "/", "/nothing", "/v1/models/other"};
    const uint64_t which = rng.Below(6);
    Connection connection(port_);
    connection.Send(Request(kPaths[which], "", "GET"));
    connection.ReadAll();
    Expect(connection, name, {which < 4 ? 200 : 404});
  }

  const int port_;
  const std::string model_;
  std::mutex mutex_;
  std::map<std::string, uint64_t> counts_;
  std::atomic<int> problems_{0};
  std::atomic<uint64_t> actions_{0};
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Until nothing runs or waits and no block is used; it has long.
bool Settles(int port, std::string* last) {
  for (int i = 0; i < 1000; ++i) {
    Connection connection(port);
    connection.Send(Request("/ready", "", "GET"));
    connection.ReadAll();
    *last = connection.body();
    const json ready = json::parse(*last, nullptr, false);
    if (ready.is_object() && ready["running"] == 0 && ready["waiting"] == 0 && ready["kv_blocks_used"] == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

constexpr int kLeastActions = 10;  // of a client, however slow the machine is

int Soak(const std::string& program, double seconds, const std::string& model, uint64_t seed, const std::string& slow_client_s) {
  ServerProcess server(program, model, slow_client_s, static_cast<int>(seconds) + 1800);
  if (server.port() == 0) return std::fprintf(stderr, "soak: the server did not start\n"), 1;
  const std::string name = std::filesystem::path(model).stem().string();
  Traffic traffic(server.port(), name);
  const int files = server.files();
  Rng filling(seed);
  traffic.Fill(filling);
  const double start = Now();
  std::vector<std::thread> clients;
  for (uint64_t i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      Rng rng(seed * 1000 + i);
      for (int n = 0; n < kLeastActions || Now() - start < seconds; ++n) traffic.Act(rng);
    });
  }
  // The first third warms up (the KV cache and every buffer are touched for the first time); the others are compared.
  std::vector<double> middle, last;
  while (Now() - start < seconds) {
    const double part = (Now() - start) / seconds;
    if (part > 2.0 / 3) last.push_back(server.resident_mib());
    else if (part > 1.0 / 3) middle.push_back(server.resident_mib());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  for (std::thread& client : clients) client.join();
  std::string ready;
  const bool settled = Settles(server.port(), &ready);
  const int files_left = server.files() - files;
  const double before = Median(middle), after = Median(last);
  // The address sanitizer keeps what is freed for a while, so its memory says nothing.
  const bool flat = kSanitizer || after <= before * 1.03 + 4;
  const int code = server.Stop();
  std::printf("%.0f s, %llu actions, %d problems\n", Now() - start, static_cast<unsigned long long>(traffic.actions()), traffic.problems());
  traffic.Print();
  std::printf("resident: %.1f MiB in the middle third, %.1f MiB in the last (%s)\n", before, after, flat ? "flat" : "GROWING");
  std::printf("afterwards: %s, %d more open files, exit code %d\n", settled ? "nothing runs, no block is used" : ready.c_str(), files_left, code);
  return traffic.problems() == 0 && flat && settled && files_left <= 2 && code == 0 && traffic.actions() > 20 ? 0 : 1;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  double seconds = 20;
  std::string model = "builtin", program = HONE_PROGRAM;
  uint64_t seed = 1;
  std::string slow_client_s = "60";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--seconds") seconds = std::atof(argv[i + 1]);
    else if (flag == "--minutes") seconds = 60 * std::atof(argv[i + 1]);
    else if (flag == "--model") model = argv[i + 1];
    else if (flag == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (flag == "--slow-client") slow_client_s = argv[i + 1];
    else if (flag == "--program") program = argv[i + 1];
    else return std::fprintf(stderr, "usage: soak [--seconds N | --minutes N] [--model MODEL] [--seed N] [--slow-client S] [--program HONE]\n"), 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  return hone::Soak(program, seconds, model, seed, slow_client_s);
}
