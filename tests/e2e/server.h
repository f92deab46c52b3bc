// hone serve as a child process, and clients of it on plain sockets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hone::e2e {

using nlohmann::json;

// The program with its stderr in a pipe. Killed if a test leaves it running.
class ServerProgram {
 public:
  explicit ServerProgram(std::vector<std::string> arguments) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return;
    arguments.insert(arguments.begin(), HONE_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipe_ends[1], STDERR_FILENO);
      close(pipe_ends[0]);
      close(pipe_ends[1]);
      alarm(900);  // a test that fails must not leave a server behind
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(pipe_ends[1]);
    err_ = fdopen(pipe_ends[0], "r");
  }
  ~ServerProgram() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (err_ != nullptr) std::fclose(err_);
  }
  ServerProgram(const ServerProgram&) = delete;

  // One line of stderr without its end; "" at the end.
  std::string Line() {
    std::string line;
    for (int c; (c = std::fgetc(err_)) != EOF && c != '\n';) line += static_cast<char>(c);
    return line;
  }
  void Signal(int signal) const { kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  int Wait() {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  std::FILE* err_ = nullptr;
};

// One request on a connection of its own.
class Exchange {
 public:
  // `headers`: whole lines, each with its end.
  Exchange(int port, const std::string& method, const std::string& path, const std::string& body = "", const std::string& headers = "") {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    const std::string text = method + " " + path + " HTTP/1.0\r\n" + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    if (connected_) connected_ = send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  ~Exchange() { close(socket_); }
  // The client sends no more; it could still read.
  void ShutdownWrite() const { shutdown(socket_, SHUT_WR); }
  Exchange(const Exchange&) = delete;

  bool connected() const { return connected_; }
  bool answered() const {
    char byte;
    return recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  }
  bool ReadUntil(const std::string& part) {
    while (text_.find(part) == std::string::npos) {
      if (!Receive()) return false;
    }
    return true;
  }
  int status() const { return text_.size() > 12 ? std::atoi(text_.c_str() + 9) : 0; }
  std::string Body() {
    while (Receive()) {
    }
    const size_t end = text_.find("\r\n\r\n");
    return end == std::string::npos ? "" : text_.substr(end + 4);
  }

 private:
  bool Receive() {
    char buffer[4096];
    const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  int socket_ = -1;
  bool connected_ = false;
  std::string text_;
};

// The payloads of an event stream.
inline std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    if (body.compare(at, 6, "data: ") == 0) events.push_back(body.substr(at + 6, end - at - 6));
  }
  return events;
}

class ServeTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"serve", "builtin", "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program_.emplace(arguments);
    const std::string line = program_->Line(), before = "http://127.0.0.1:";
    const size_t at = line.find(before);
    ASSERT_NE(at, std::string::npos) << line;
    port_ = std::atoi(line.c_str() + at + before.size());
    ASSERT_GT(port_, 0);
  }
  json Post(const std::string& path, const json& body) {
    Exchange exchange(port_, "POST", path, body.dump());
    const json answer = json::parse(exchange.Body(), nullptr, false);
    EXPECT_EQ(exchange.status(), 200) << answer;
    return answer;
  }
  json Chat(const json& more, bool stream = false) {
    json body = {{"model", "builtin"}, {"max_tokens", 40},
                 {"messages", {{{"role", "user"}, {"content", "Tell me a story about a fox and a lamp."}}}}};
    body.update(more);
    if (!stream) return Post("/v1/chat/completions", body);
    body["stream"] = true;
    Exchange exchange(port_, "POST", "/v1/chat/completions", body.dump());
    std::vector<std::string> events = Events(exchange.Body());
    if (events.empty() || events.back() != "[DONE]") return nullptr;
    events.pop_back();
    json joined = {{"content", ""}};
    for (const std::string& event : events) {
      const json choice = json::parse(event)["choices"][0];
      joined["content"] = joined["content"].get<std::string>() + choice["delta"].value("content", "");
      if (!choice["finish_reason"].is_null()) joined["finish_reason"] = choice["finish_reason"], joined["seed"] = choice["seed"];
    }
    return joined;
  }
  std::string Endless() const {
    return json({{"model", "builtin"}, {"prompt", "The fox"}, {"max_tokens", 3000}, {"temperature", 1}, {"seed", 1},
                 {"ignore_eos", true}, {"stream", true}}).dump();
  }
  // GET /ready once nothing runs or waits any more.
  json Idle() {
    json ready = Ready();
    for (int tries = 0; tries < 5000 && (ready["running"] != 0 || ready["waiting"] != 0); ++tries) usleep(20000), ready = Ready();
    return ready;
  }
  json Ready() { return json::parse(Exchange(port_, "GET", "/ready").Body()); }

  std::optional<ServerProgram> program_;
  int port_ = 0;
};

}  // namespace hone::e2e
