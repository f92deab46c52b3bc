// hone serve as clients meet it: the announced address works, a stream is the same text as a whole answer, the seed that an
// answer names repeats it, a signal drains, a second one ends at once.
#include <gtest/gtest.h>
#include <arpa/inet.h>
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

namespace {

using nlohmann::json;

// The program with its stderr in a pipe. Killed if a test leaves it running.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
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
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (err_ != nullptr) std::fclose(err_);
  }
  Program(const Program&) = delete;

  // One line of stderr without its end; "" at the end.
  std::string Line() {
    std::string line;
    for (int c; (c = std::fgetc(err_)) != EOF && c != '\n';) line += static_cast<char>(c);
    return line;
  }
  void Signal(int signal) const { kill(pid_, signal); }
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
  Exchange(int port, const std::string& method, const std::string& path, const std::string& body = "") {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    const std::string text = method + " " + path + " HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    if (connected_) connected_ = send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  ~Exchange() { close(socket_); }
  Exchange(const Exchange&) = delete;

  bool connected() const { return connected_; }
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
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    if (body.compare(at, 6, "data: ") == 0) events.push_back(body.substr(at + 6, end - at - 6));
  }
  return events;
}

class Serve : public testing::Test {
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
  json Ready() { return json::parse(Exchange(port_, "GET", "/ready").Body()); }

  std::optional<Program> program_;
  int port_ = 0;
};

TEST_F(Serve, AStreamIsTheSameTextAsAWholeAnswer) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const json& more : {json{{"temperature", 0}}, json{{"temperature", 1.2}, {"seed", -5}},
                           json{{"temperature", 0}, {"stop", {"fox"}}}}) {
    const json whole = Chat(more)["choices"][0], stream = Chat(more, true);
    EXPECT_FALSE(whole["message"]["content"].get<std::string>().empty());
    EXPECT_EQ(whole["message"]["content"], stream["content"]) << more;
    EXPECT_EQ(whole["finish_reason"], stream["finish_reason"]);
    EXPECT_EQ(stream["seed"].is_number(), true);
    if (!more.contains("seed")) continue;
    EXPECT_EQ(whole["seed"], more["seed"]);
    EXPECT_EQ(stream["seed"], more["seed"]);
  }
  // A random seed is told, and small enough for every JSON reader.
  const json random = Chat({{"temperature", 1.2}})["choices"][0];
  EXPECT_LT(random["seed"].get<int64_t>(), int64_t{1} << 53);
  EXPECT_EQ(Chat({{"temperature", 1.2}, {"seed", random["seed"]}})["choices"][0]["message"], random["message"]);
  EXPECT_EQ(Chat({{"temperature", 1}, {"seed", 3}, {"n", 2}})["choices"][1]["seed"], 4);
}

// Five blocks of memory more than one context: sequences push each other out, and say what they say alone.
TEST_F(Serve, PreemptionAndLeavingClientsChangeNothing) {
  ASSERT_NO_FATAL_FAILURE(Start({"--ctx", "256", "--kv-bytes", "1400KiB", "--max-sequences", "8"}));
  const auto body = [](int i) {
    return json({{"model", "builtin"}, {"prompt", "The fox number " + std::to_string(i)}, {"max_tokens", 100},
                 {"temperature", 0}, {"ignore_eos", true}}).dump();
  };
  std::vector<std::string> alone;
  for (int i = 0; i < 8; ++i) {
    Exchange one(port_, "POST", "/v1/completions", body(i));
    alone.push_back(json::parse(one.Body())["choices"][0]["text"]);
  }
  {
    Exchange leaves(port_, "POST", "/v1/completions", Endless());
    std::vector<std::unique_ptr<Exchange>> together;
    for (int i = 0; i < 8; ++i) together.push_back(std::make_unique<Exchange>(port_, "POST", "/v1/completions", body(i)));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(json::parse(together[i]->Body())["choices"][0]["text"], alone[i]) << i;
  }
  json ready = Ready();
  for (int tries = 0; tries < 5000 && ready["running"] != 0; ++tries) usleep(20000), ready = Ready();
  EXPECT_EQ(ready["running"], 0);
  EXPECT_EQ(ready["waiting"], 0);
  EXPECT_EQ(ready["kv_blocks_used"], 0);
  EXPECT_GT(ready["kv_blocks"], 0);
  EXPECT_GT(ready["preemptions"], 0);
}

TEST_F(Serve, ASignalLetsStreamsEnd) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "3600"}));
  json body = json::parse(Endless());
  body["max_tokens"] = 200;
  Exchange stream(port_, "POST", "/v1/completions", body.dump());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  program_->Signal(SIGTERM);
  const std::vector<std::string> events = Events(stream.Body());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(program_->Wait(), 0);
  EXPECT_FALSE(Exchange(port_, "GET", "/health").connected());
}

TEST_F(Serve, WhoIsCutIsTold) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "0.01"}));
  Exchange stream(port_, "POST", "/v1/completions", Endless());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  program_->Signal(SIGTERM);
  const std::vector<std::string> events = Events(stream.Body());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(json::parse(events.back())["error"]["code"], "unavailable");
  EXPECT_EQ(program_->Wait(), 0);
}

TEST_F(Serve, ASecondSignalEndsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "60"}));
  Exchange stream(port_, "POST", "/v1/completions", Endless());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  program_->Signal(SIGTERM);
  while (program_->Line().find("stopping") == std::string::npos) {
  }
  program_->Signal(SIGTERM);
  EXPECT_EQ(program_->Wait(), 130);
}

TEST_F(Serve, APortInUseIsNamed) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Program second({"serve", "builtin", "--port", std::to_string(port_)});
  EXPECT_NE(second.Line().find("port " + std::to_string(port_)), std::string::npos);
  EXPECT_EQ(second.Wait(), 1);
}

TEST_F(Serve, TheAnnouncedCurlLineHoldsAnyName) {
  ASSERT_NO_FATAL_FAILURE(Start({"--name", "it's \"q\""}));
  program_->Line();
  EXPECT_NE(program_->Line().find("curl http://127.0.0.1:" + std::to_string(port_)), std::string::npos);
  EXPECT_NE(program_->Line().find(R"({"model": "it'\''s \"q\"", )"), std::string::npos);
}

}  // namespace
