// Connections: limits, keep-alive, pipelines, garbage, clients that go away or do not read. Nothing here measures time.
#include "serve/http_server.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "serve/http_text.h"
#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

class Connections : public ServerTest {
 protected:
  std::string Post(const std::string& body, const std::string& headers = "") {
    return TestClient::Format("POST", kChat, body, headers);
  }
};

TEST_F(Connections, KeepAliveAndPipelining) {
  Start();
  TestClient client(port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Call("GET", "/health").status, 200);
  client.Send(Post(ChatBody("first", R"("max_tokens":1)")) + TestClient::Format("GET", "/health", "") +
              Post(ChatBody("second", R"("max_tokens":2,"stream":true)")) + TestClient::Format("GET", "/v1/nothing", ""));
  EXPECT_EQ(json::parse(client.ReadResponse().body)["choices"][0]["message"]["content"], "w0 ");
  EXPECT_EQ(json::parse(client.ReadResponse().body)["status"], "ok");
  EXPECT_EQ(client.ReadResponse().events().back(), "[DONE]");
  EXPECT_EQ(client.ReadResponse().status, 404);
  const ClientResponse last = client.Call("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(last.header("connection"), "close");
  EXPECT_FALSE(client.Receive());
}

TEST_F(Connections, PipelineBeyondTheReadAheadIsServed) {
  Start();
  TestClient client(port());
  std::string all;
  const int count = static_cast<int>(3 * kMaxPipelinedBytes / 40);
  for (int i = 0; i < count; ++i) all += TestClient::Format("GET", "/health", "");
  std::thread sender([&] { client.Send(all); });
  int fine = 0;
  for (int i = 0; i < count; ++i) fine += client.ReadResponse().status == 200;
  sender.join();
  EXPECT_EQ(fine, count);
}

TEST_F(Connections, Http10) {
  Start();
  TestClient client(port());
  client.Send("GET /health HTTP/1.0\r\n\r\n");
  const std::string whole = client.ReadAll();
  EXPECT_NE(whole.find("{\"status\":\"ok\"}"), std::string::npos);
  TestClient stream(port());
  const std::string body = ChatBody("x", R"("stream":true)");
  stream.Send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string text = stream.ReadAll();
  EXPECT_EQ(text.find("chunked"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 14), "data: [DONE]\n\n");
}

TEST_F(Connections, ChunkedBodies) {
  Start();
  const std::string body = ChatBody("hello", R"("max_tokens":2)");
  std::string chunked;
  for (size_t i = 0; i < body.size(); i += 7) {
    const std::string piece = body.substr(i, 7);
    chunked += std::to_string(piece.size()) + "\r\n" + piece + "\r\n";
  }
  TestClient client(port());
  const std::string head = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  client.Send(head + chunked + "0\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 200);
  for (const char c : head + chunked + "0\r\n\r\n") client.Send(std::string(1, c));  // byte by byte
  EXPECT_EQ(json::parse(client.ReadResponse().body)["choices"][0]["message"]["content"], "w0 w1 ");
}

TEST_F(Connections, ExpectContinue) {
  Start();
  const std::string body = ChatBody("hello");
  TestClient client(port());
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 100);
  client.Send(body);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(Connections, HeaderLimit) {
  ServeOptions options;
  options.limits.header_bytes = 2000;
  Start(options);
  const auto with = [&](size_t size) {
    std::string head = "GET /health HTTP/1.1\r\nHost: t\r\nX-Big: ";
    head += std::string(size - head.size() - 4, 'a') + "\r\n\r\n";
    TestClient client(port());
    client.Send(head);
    return client.ReadResponse().status;
  };
  EXPECT_EQ(with(1990), 200);
  EXPECT_EQ(with(2100), 431);
  EXPECT_EQ(with(100000), 431);
  // Many short lines count together, however they arrive.
  const auto lines = [&](int count) {
    TestClient client(port());
    client.Send("GET /health HTTP/1.1\r\nHost: t\r\n");
    for (int i = 0; i < count; i += 50) {
      std::string some;
      for (int k = i; k < std::min(count, i + 50); ++k) some += "A: bcde\r\n";
      client.Send(some);
    }
    client.Send("\r\n");
    return client.ReadResponse().status;
  };
  EXPECT_EQ(lines(200), 200);
  EXPECT_EQ(lines(250), 431);
  EXPECT_EQ(lines(20000), 431);
}

TEST_F(Connections, BodyLimit) {
  ServeOptions options;
  options.limits.body_bytes = 1000;
  Start(options);
  std::string body = ChatBody("");
  body = ChatBody(std::string(1000 - body.size(), 'a'));
  ASSERT_EQ(body.size(), 1000u);
  EXPECT_EQ(Call("POST", kChat, body).status, 200);
  EXPECT_EQ(Call("POST", kChat, body + " ").status, 413);
  // Refused by the header alone: no byte of the body is sent.
  TestClient client(port());
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 999999999999\r\n\r\n");
  const ClientResponse refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "request_too_large");
  client.ShutdownWrite();
  EXPECT_FALSE(client.Receive());
  // Chunked: refused when it grows too large.
  TestClient chunked(port());
  chunked.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string piece(500, ' ');
  for (int i = 0; i < 3; ++i) chunked.Send("1f4\r\n" + piece + "\r\n");
  EXPECT_EQ(chunked.ReadResponse().status, 413);
}

TEST_F(Connections, AllBodiesLimit) {
  ServeOptions options;
  options.limits.all_bodies_bytes = 3000;
  Start(options);
  TestClient first(port()), second(port());
  first.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n");
  ASSERT_EQ(first.ReadResponse().status, 100);
  first.Send("{");
  EXPECT_TRUE(Eventually([&] {
    TestClient probe(port());
    probe.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 1500\r\n\r\n ");
    const ClientResponse response = probe.ReadResponse();
    return response.status == 503 && response.header("retry-after") == "1";
  }));
  first.Close();
  EXPECT_TRUE(Eventually([&] { return Call("POST", kChat, ChatBody(std::string(1300, 'a'))).status == 400; }));
}

TEST_F(Connections, ConnectionLimit) {
  ServeOptions options;
  options.limits.connections = 3;
  Start(options);
  std::vector<std::unique_ptr<TestClient>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(std::make_unique<TestClient>(port()));
    open.back()->Send(TestClient::Format("POST", kChat, ChatBody("hold")));
  }
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 3; }));
  TestClient extra(port());
  const ClientResponse refused = extra.ReadResponse();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "overloaded");
  extra.Close();
  open.pop_back();
  EXPECT_TRUE(Eventually([&] { return TestClient(port()).Call("GET", "/health").status == 200; }));
}

// Whoever only keeps a connection makes room for who asks, the longest idle first.
TEST_F(Connections, IdleConnectionsMakeRoom) {
  ServeOptions options;
  options.limits.connections = 3;
  Start(options);
  TestClient busy(port()), first(port()), second(port());
  busy.Send(TestClient::Format("POST", kChat, ChatBody("hold", R"("max_tokens":1)")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  EXPECT_EQ(second.Call("GET", "/health").status, 200);
  EXPECT_EQ(first.Call("GET", "/health").status, 200);
  TestClient third(port());
  EXPECT_EQ(third.Call("GET", "/health").status, 200);
  EXPECT_EQ(second.ReadAll(), "") << "closed";
  EXPECT_EQ(first.Call("GET", "/health").status, 200);
  engine_->ReleaseHeld();
  EXPECT_EQ(busy.ReadResponse().status, 200);
}

// What stands around chunks and behind the last is no place for endless bytes, and none for headers.
TEST_F(Connections, ChunkLinesAndTrailers) {
  ServeOptions options;
  options.limits.header_bytes = 2000;
  Start(options);
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: t\r\nX-Request-Id: before\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string body = R"({"prompt":"abc"})", chunk = "10\r\n" + body + "\r\n";
  for (const std::string& begin : {head + "10;a=", head + "10;a=b", head + chunk + "0;", head + chunk + "0;a=", head + chunk + "0\r\nX: "}) {
    TestClient endless(port());
    endless.Send(begin);
    const std::string piece(1000, 'a');
    int pieces = 0;
    while (pieces < 200000 && endless.Send(piece) && endless.buffered().empty() && ++pieces < 100) {
    }
    EXPECT_EQ(endless.ReadResponse().status, 431) << begin;
  }
  // Many short trailers count together.
  TestClient many(port());
  std::string lines = head + chunk + "0\r\n";
  for (int i = 0; i < 400; ++i) lines += "A: bcde\r\n";
  many.Send(lines);
  EXPECT_EQ(many.ReadResponse().status, 431);
  TestClient trailers(port());
  trailers.Send(head + "10;name=value\r\n" + body + "\r\n0\r\nX-Request-Id: behind\r\nContent-Type: text/plain\r\nHost: other\r\n\r\n");
  const ClientResponse response = trailers.ReadResponse();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.header("x-request-id"), "before");
  EXPECT_EQ(trailers.Call("GET", "/health").status, 200) << "nothing is left over";
}

TEST_F(Connections, SlowRequestsAreClosed) {
  ServeOptions options;
  options.limits.header_s = 0.05;
  options.limits.body_s = 0.05;
  options.limits.idle_s = 0.05;
  Start(options);
  TestClient idle(port());
  EXPECT_EQ(idle.ReadAll(), "");
  TestClient header(port());
  header.Send("GET /health HTTP/1.1\r\nHos");
  EXPECT_EQ(header.ReadResponse().status, 408);
  TestClient body(port());
  body.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(body.ReadResponse().status, 408);
}

TEST_F(Connections, BadHttp) {
  Start();
  const std::pair<const char*, int> cases[] = {
      {"garbage\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET /health HTTP/2.0\r\nHost: t\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: a\r\nBad Header: b\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nGET /health HTTP/1.1\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 3\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 0x2\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551618\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length : 2\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nA: b\rContent-Length: 2\r\n\r\n{}", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: magic\r\n\r\n", 400},
      {"\x16\x03\x01\x02", 400},
  };
  for (const auto& [bytes, status] : cases) {
    TestClient client(port());
    client.Send(bytes);
    const ClientResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, status) << bytes;
    EXPECT_TRUE(json::accept(response.body)) << bytes << response.body;
  }
  EXPECT_EQ(Call("GET", "/health").status, 200);
}

TEST_F(Connections, RandomBytesDoNoHarm) {
  Start();
  Rng rng(7);
  const std::string request = Post(ChatBody("x"));
  for (int round = 0; round < 300; ++round) {
    std::string bytes = request;
    for (uint64_t i = 0; i < 1 + rng.Below(8); ++i) {
      const size_t at = rng.Below(bytes.size());
      switch (rng.Below(3)) {
        case 0: bytes[at] = static_cast<char>(rng.Next()); break;
        case 1: bytes.erase(at, rng.Below(20)); break;
        default: bytes.insert(at, std::string(rng.Below(9), static_cast<char>(rng.Next())));
      }
    }
    TestClient client(port());
    client.Send(bytes);
    client.ShutdownWrite();
    client.ReadAll();
  }
  EXPECT_EQ(Call("GET", "/health").status, 200);
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
}

TEST_F(Connections, ClientsThatGoAwayCancel) {
  Start();
  for (const bool stream : {false, true}) {
    for (const char* what : {"endless", "hold"}) {
      for (const bool reset : {false, true}) {
        TestClient client(port());
        client.Send(Post(ChatBody(what, stream ? R"("stream":true,"n":2)" : R"("n":2)")));
        ASSERT_TRUE(Eventually([&] { return engine_->running() == 2; })) << what;
        if (stream) {
          ASSERT_TRUE(client.ReadUntil("text/event-stream"));
        }
        if (reset) client.Reset();
        else client.Close();
        EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; })) << what << stream << reset;
      }
    }
  }
  EXPECT_EQ(engine_->cancel_calls(), 16u);
}

TEST_F(Connections, GoneClientsDoNotDisturbOthers) {
  Start();
  TestClient stays(port());
  stays.Send(Post(ChatBody("hold on", R"("stream":true)")));
  ASSERT_TRUE(stays.ReadUntil("text/event-stream"));
  {
    TestClient goes(port());
    goes.Send(Post(ChatBody("endless", R"("stream":true)")));
    ASSERT_TRUE(goes.ReadUntil("w5"));
  }
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  engine_->ReleaseHeld();
  EXPECT_EQ(stays.ReadResponse().events().back(), "[DONE]");
}

TEST_F(Connections, ReadersThatStopAreDropped) {
  Start();
  TestClient slow(port(), 4096);
  slow.Send(Post(ChatBody("huge", R"("stream":true)")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  // Nothing is read: 64 KiB a token fill the kernel's buffers and then the queue.
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
  EXPECT_EQ(Call("GET", "/health").status, 200);
}

TEST_F(Connections, PingsInSilence) {
  ServeOptions options;
  options.limits.ping_s = 0.02;
  Start(options);
  TestClient client(port());
  client.Send(Post(ChatBody("hold", R"("stream":true)")));
  ASSERT_TRUE(client.ReadUntil(": ping\n\n\r\n8\r\n: ping\n\n"));
  engine_->ReleaseHeld();
  const ClientResponse response = client.ReadResponse();
  EXPECT_EQ(response.body.rfind(": ping\n\n", 0), 0u);
  EXPECT_EQ(response.events().size(), 13u);
  EXPECT_EQ(client.Call("GET", "/health").status, 200);
}

TEST_F(Connections, AHundredStreams) {
  Start();
  constexpr int kStreams = 100;
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<TestClient>(port()));
    clients.back()->Send(Post(ChatBody("hold " + std::to_string(i), R"("stream":true)")));
  }
  ASSERT_TRUE(Eventually([&] { return engine_->running() == kStreams; }));
  engine_->ReleaseHeld();
  int fine = 0;
  for (const auto& client : clients) {
    const ClientResponse response = client->ReadResponse();
    std::string text;
    for (const std::string& event : response.events()) {
      if (event != "[DONE]") text += json::parse(event)["choices"][0]["delta"].value("content", "");
    }
    fine += response.complete && text == "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 ";
  }
  EXPECT_EQ(fine, kStreams);
}

TEST_F(Connections, LongTokenisationDoesNotStopStreams) {
  // Two workers read large bodies that then are too long for the context; /health and a stream go on meanwhile.
  Start();
  const std::string body = ChatBody(std::string(1u << 20, 'a'));
  std::vector<std::thread> large;
  std::atomic<int> refused{0};
  for (int i = 0; i < 4; ++i) {
    large.emplace_back([&] {
      const ClientResponse response = Call("POST", kChat, body);
      refused += response.status == 400 && response.body.find("context_length_exceeded") != std::string::npos;
    });
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Call("GET", "/health").status, 200);
  for (std::thread& thread : large) thread.join();
  EXPECT_EQ(refused, 4);
}

TEST_F(Connections, StopCancelsAndDrains) {
  Start();
  TestClient hold(port());
  hold.Send(Post(ChatBody("hold")));
  TestClient idle(port());
  EXPECT_EQ(idle.Call("GET", "/health").status, 200);
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  const int old_port = port();
  std::thread waiter([&] { server_->Wait(); });
  std::thread stopper([&] { server_->Stop(30); });
  EXPECT_FALSE(idle.Receive());  // closed at once
  // New clients are told: alive, not ready, no new work.
  const ClientResponse ready = TestClient(old_port).Call("GET", "/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(json::parse(ready.body)["status"], "stopping");
  EXPECT_EQ(TestClient(old_port).Call("GET", "/health").status, 200);
  const ClientResponse late = TestClient(old_port).Call("POST", kChat, ChatBody("hello"));
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.header("connection"), "close");
  EXPECT_FALSE(late.header("retry-after").empty());
  engine_->ReleaseHeld();
  const ClientResponse response = hold.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("connection"), "close");
  stopper.join();
  waiter.join();
  EXPECT_FALSE(TestClient(old_port).connected());

  for (int round = 0; round < 20; ++round) {  // the end may come before the generation listens for it
    Start();
    TestClient stream(port()), whole(port());
    stream.Send(Post(ChatBody("hold", R"("stream":true)")));
    ASSERT_TRUE(stream.ReadUntil("event-stream"));
    whole.Send(Post(ChatBody("hold")));
    ASSERT_TRUE(Eventually([&] { return engine_->running() == 2; }));
    server_->Stop(0);
    EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
    const ClientResponse cut = stream.ReadResponse();  // told why, and not that it is done
    EXPECT_EQ(json::parse(cut.events().back())["error"]["code"], "unavailable");
    EXPECT_EQ(whole.ReadResponse().status, 503);
  }
  server_->Stop(0);
}

TEST_F(Connections, TheEngineStopsFirst) {
  Start();
  TestClient whole(port()), stream(port());
  whole.Send(Post(ChatBody("hold")));
  stream.Send(Post(ChatBody("hold", R"("stream":true)")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 2; }));
  engine_->Stop();
  EXPECT_EQ(whole.ReadResponse().status, 503);
  const ClientResponse ended = stream.ReadResponse();
  EXPECT_EQ(ended.status, 200);
  EXPECT_NE(ended.body.find("\"error\""), std::string::npos);
}

TEST(HttpServer, ALostWriterIsA500) {
  std::shared_ptr<ResponseWriter> kept;
  HttpOptions options;
  options.port = 0;
  auto server = HttpServer::Start(options, [&](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
    if (request.path == "/keep") kept = writer;
    if (request.path == "/twice") {
      writer->Send({.body = "1"});
      writer->Send({.body = "2"});
      writer->Write("3");
      writer->End();
    }
  });
  ASSERT_TRUE(server.has_value());
  TestClient client((*server)->port());
  EXPECT_EQ(client.Call("GET", "/lose").status, 500);
  EXPECT_EQ(client.Call("GET", "/twice").body, "1");
  EXPECT_EQ(client.Call("GET", "/lose").status, 500);
  client.Send(TestClient::Format("GET", "/keep", ""));
  EXPECT_TRUE(Eventually([&] { return (*server)->connections() == 1; }));
  (*server)->Stop(0);
  // The writer outlives the server: its calls do nothing, and it says that nobody is there.
  if (kept != nullptr) {
    bool gone = false;
    kept->OnGone([&] { gone = true; });
    EXPECT_TRUE(gone);
    kept->Send({});
  }
}

TEST(HttpText, Targets) {
  std::string path, query;
  SplitTarget("/a%20b/%C3%A9?x=%20", &path, &query);
  EXPECT_EQ(path, "/a b/\xC3\xA9");
  EXPECT_EQ(query, "x=%20");
  SplitTarget("http://h:1", &path, &query);
  EXPECT_EQ(path, "/");
  SplitTarget("/%zz%4", &path, &query);
  EXPECT_EQ(path, "/%zz%4");
  SplitTarget("/a?b://c", &path, &query);
  EXPECT_EQ(path, "/a");
}

TEST(JsonText, AlwaysValid) {
  EXPECT_EQ(JsonWriter().String("a\"\\\n\x01\x7f").text(), "\"a\\\"\\\\\\n\\u0001\\u007f\"");
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x98"), "\xEF\xBF\xBD");
  EXPECT_EQ(RepairUtf8("a\xFF\xC0\x80z"), "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(FindInvalidUtf8("ab\xC3\xA9\xC3"), 4u);
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (uint64_t n = rng.Below(12); n > 0; --n) bytes.push_back(static_cast<char>(rng.Next()));
    EXPECT_EQ(json::parse(JsonWriter().String(bytes).text()).get<std::string>(), RepairUtf8(bytes));
  }
  EXPECT_EQ(JsonWriter().BeginArray().Double(HUGE_VAL).Double(-0.25).Uint(~uint64_t{0}).EndArray().text(),
            "[null,-0.25,18446744073709551615]");
}

}  // namespace
}  // namespace hone
