// hone pull against a stand-in for the hub on this machine: lists, redirects, breaks, wrong bytes, tokens.
#include "cli/hub.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/model_path.h"
#include "serve/http_server.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// Of "hello\n": `git hash-object`, `sha256sum`.
constexpr char kHello[] = "hello\n";
constexpr char kHelloGit[] = "ce013625030ba8dba906f756967f9e9ca394464a";
constexpr char kHelloSha[] = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

class Hub : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    options_.models = testing::TempDir() + "/hub." + test->name();
    fs::remove_all(options_.models);
    HttpOptions http;
    http.port = 0;
    auto server = HttpServer::Start(
        http, [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) { Answer(request, *writer); });
    ASSERT_TRUE(server.has_value());
    server_ = std::move(*server);
    options_.hub = "http://127.0.0.1:" + std::to_string(server_->port());
  }

  void Answer(const HttpRequest& request, ResponseWriter& writer) {
    std::lock_guard lock(mutex_);
    log_.push_back(request.path + (request.header("range").empty() ? "" : " " + std::string(request.header("range"))));
    token_ = request.header("authorization");
    HttpResponse response;
    if (private_ && token_ != "Bearer secret") {
      response.status = 401;
    } else if (request.path == "/api/models/o/n/tree/main") {
      response.body = list_.dump();
      if (request.query.find("cursor") == std::string::npos && !second_page_.is_null()) {
        response.headers.emplace_back("Link", "<" + options_.hub + "/api/models/o/n/tree/main?cursor=1>; rel=\"next\"");
      } else if (!second_page_.is_null()) {
        response.body = second_page_.dump();
      }
    } else if (request.path.rfind("/o/n/resolve/main/", 0) == 0) {
      const std::string file = request.path.substr(18);
      response.status = 302;
      response.headers.emplace_back("Location", options_.hub + "/blob/" + file);
      if (files_.count(file) == 0) response.status = 404;
    } else if (request.path.rfind("/blob/", 0) == 0) {
      const std::string& all = files_[request.path.substr(6)];
      size_t from = 0;
      if (const std::string_view range = request.header("range"); range.rfind("bytes=", 0) == 0 && resumes_) {
        from = std::stoul(std::string(range.substr(6)));
        response.status = 206;
        response.headers.emplace_back(
            "Content-Range",
            "bytes " + std::to_string(from) + "-" + std::to_string(all.size() - 1) + "/" + std::to_string(all.size()));
      }
      if (breaks_ > 0) {
        --breaks_;
        response.headers.emplace_back("Content-Type", "application/octet-stream");
        writer.StartStream(std::move(response), "", "");
        writer.Write(all.substr(from, 3));
        return writer.End();  // fewer bytes than announced
      }
      response.body = all.substr(from);
    } else {
      response.status = 404;
    }
    writer.Send(std::move(response));
  }

  void Add(const std::string& path, const std::string& content, const std::string& sha256, const std::string& git) {
    files_[path] = content;
    nlohmann::json entry = {{"type", "file"}, {"path", path}, {"size", content.size()}, {"oid", git}};
    if (!sha256.empty()) entry["lfs"] = {{"oid", sha256}, {"size", content.size()}};
    list_.push_back(entry);
  }
  std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }
  std::string Fails(const HubName& name) {
    const auto path = PullFromHub(options_, name);
    return path ? "" : path.error().message;
  }

  HubOptions options_;
  std::mutex mutex_;
  nlohmann::json list_ = nlohmann::json::array(), second_page_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> log_;
  std::string token_;
  bool private_ = false, resumes_ = true;
  int breaks_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Hub, AGgufIsFetchedOnceAndFound) {
  Add("m.gguf", kHello, kHelloSha, "");
  Add("README.md", "text", "", "");
  const HubName name{"o", "n", ""};
  EXPECT_NE(LocalHubCopy(options_, name).error().message.find("hone pull o/n"), std::string::npos);
  const auto path = PullFromHub(options_, name);
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(*path, options_.models + "/o/n/m.gguf");
  EXPECT_EQ(Read(*path), kHello);
  EXPECT_FALSE(fs::exists(options_.models + "/o/n/README.md"));
  EXPECT_EQ(*LocalHubCopy(options_, name), *path);
  EXPECT_EQ(*LocalHubCopy(options_, {"o", "n", "m.gguf"}), *path);
  const size_t asked = log_.size();
  EXPECT_TRUE(PullFromHub(options_, name).has_value());
  EXPECT_EQ(log_.size(), asked + 1);  // the list alone
}

TEST_F(Hub, AFolderOfSafetensors) {
  Add("config.json", kHello, "", kHelloGit);
  Add("model-00001-of-00002.safetensors", kHello, kHelloSha, "");
  Add("onnx/model.onnx", "no", "", "");
  Add("pytorch_model.bin", "no", "", "");
  second_page_ = {
      {{"type", "file"}, {"path", "model-00002-of-00002.safetensors"}, {"size", 6}, {"lfs", {{"oid", kHelloSha}}}},
      {{"type", "directory"}, {"path", "onnx"}}};
  files_["model-00002-of-00002.safetensors"] = kHello;
  const auto path = PullFromHub(options_, {"o", "n", ""});
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(*path, options_.models + "/o/n");
  EXPECT_EQ(Read(*path + "/config.json"), kHello);
  EXPECT_EQ(Read(*path + "/model-00002-of-00002.safetensors"), kHello);
  EXPECT_FALSE(fs::exists(*path + "/pytorch_model.bin"));
  EXPECT_EQ(*LocalHubCopy(options_, {"o", "n", ""}), *path);
}

TEST_F(Hub, ChoicesAreNamed) {
  for (const char* file : {"a.gguf", "b.gguf", "q/c-00001-of-00002.gguf", "q/c-00002-of-00002.gguf"})
    Add(file, kHello, kHelloSha, "");
  const std::string several = Fails({"o", "n", ""});
  EXPECT_NE(several.find("a.gguf, b.gguf"), std::string::npos) << several;
  EXPECT_NE(Fails({"o", "n", "x.gguf"}).find("has no file x.gguf; it has a.gguf"), std::string::npos);
  const auto parts = PullFromHub(options_, {"o", "n", "q/c-00001-of-00002.gguf"});
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  EXPECT_EQ(*parts, options_.models + "/o/n/q/c-00001-of-00002.gguf");
  EXPECT_TRUE(fs::exists(options_.models + "/o/n/q/c-00002-of-00002.gguf"));
  list_ = nlohmann::json::array();
  EXPECT_NE(Fails({"o", "n", ""}).find("no GGUF"), std::string::npos);
  EXPECT_NE(Fails({"o", "other", ""}).find("no such repository"), std::string::npos);
}

TEST_F(Hub, BreaksAreResumed) {
  Add("m.gguf", kHello, kHelloSha, "");
  breaks_ = 1;
  const auto path = PullFromHub(options_, {"o", "n", ""});
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(Read(*path), kHello);
  EXPECT_EQ(log_.back(), "/blob/m.gguf bytes=3-");
  // By another run, and from a server that sends it all again.
  for (const bool resumes : {true, false}) {
    fs::remove(*path);
    std::ofstream(*path + ".part", std::ios::binary) << "hel";
    resumes_ = resumes;
    ASSERT_TRUE(PullFromHub(options_, {"o", "n", ""}).has_value());
    EXPECT_EQ(Read(*path), kHello);
    EXPECT_FALSE(fs::exists(*path + ".part"));
  }
}

TEST_F(Hub, WrongBytesAreNotKept) {
  Add("m.gguf", "Hello\n", kHelloSha, "");
  EXPECT_NE(Fails({"o", "n", ""}).find("digest"), std::string::npos);
  EXPECT_FALSE(fs::exists(options_.models + "/o/n/m.gguf"));
  EXPECT_FALSE(fs::exists(options_.models + "/o/n/m.gguf.part"));
  files_["m.gguf"] = kHello;
  // A broken first part is found out, and fetched anew.
  std::ofstream(options_.models + "/o/n/m.gguf.part", std::ios::binary) << "HEL";
  const auto path = PullFromHub(options_, {"o", "n", ""});
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(Read(*path), kHello);
  files_["m.gguf"] = "hello\nand much more";
  fs::remove(*path);
  EXPECT_NE(Fails({"o", "n", ""}).find("more than the 6 bytes"), std::string::npos);
  list_ = {{{"type", "file"}, {"path", "c.gguf"}, {"size", 6}, {"oid", std::string(40, '0')}}};
  files_["c.gguf"] = kHello;
  EXPECT_NE(Fails({"o", "n", ""}).find("digest " + std::string(kHelloGit)), std::string::npos);
}

TEST_F(Hub, PathsCannotLeaveTheFolder) {
  for (const char* path : {"../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a\\..\\evil.gguf"})
    Add(path, kHello, kHelloSha, "");
  EXPECT_NE(Fails({"o", "n", ""}).find("no GGUF"), std::string::npos);
  EXPECT_FALSE(ParseHubName("o/n:../x"));
  EXPECT_FALSE(ParseHubName("../n"));
  EXPECT_FALSE(ParseHubName("o/.."));
  EXPECT_FALSE(ParseHubName("o/n/x"));
  EXPECT_FALSE(ParseHubName("name"));
  EXPECT_FALSE(ParseHubName("./name"));
  EXPECT_FALSE(ParseHubName("o/n:"));
  EXPECT_EQ(ParseHubName("o-1/n.v2:a/b.gguf")->file, "a/b.gguf");
}

TEST_F(Hub, TokensGoToTheHub) {
  Add("m.gguf", kHello, kHelloSha, "");
  private_ = true;
  EXPECT_NE(Fails({"o", "n", ""}).find("set HF_TOKEN"), std::string::npos);
  options_.token = "wrong";
  EXPECT_NE(Fails({"o", "n", ""}).find("refuses access"), std::string::npos);
  options_.token = "secret";
  EXPECT_TRUE(PullFromHub(options_, {"o", "n", ""}).has_value());
  server_.reset();
  EXPECT_NE(Fails({"o", "n", ""}).find("cannot be asked"), std::string::npos);
}

// What was pulled is a MODEL by its name, and has that name.
TEST_F(Hub, PulledModelsOpenByName) {
  fs::create_directories(options_.models + "/o");
  fs::create_directory_symlink(std::string(HONE_SOURCE_DIR) + "/assets/builtin/main", options_.models + "/o/n");
  ASSERT_EQ(::setenv("HONE_MODELS", options_.models.c_str(), 1), 0);
  const auto opened = OpenModel("o/n");
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(ModelName("o/n", **opened), "o/n");
  const auto missing = OpenModel("o/other");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("hone pull o/other"), std::string::npos);
  ::unsetenv("HONE_MODELS");
}

}  // namespace
}  // namespace hone
