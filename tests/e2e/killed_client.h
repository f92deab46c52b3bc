// A client that is killed while it is being answered.
#pragma once

#include "e2e/server.h"

namespace hone::e2e {

// A process that asks for several answers, waits until one of them has begun, and is killed.
inline void AskAndBeKilled(int port, const std::vector<std::string>& bodies, const std::string& headers = "") {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(900);
    std::vector<std::unique_ptr<Exchange>> asked;
    for (const std::string& body : bodies) asked.push_back(std::make_unique<Exchange>(port, "POST", "/v1/completions", body, headers));
    asked.front()->ReadUntil("data: ");
    (void)!write(ends[1], "x", 1);
    for (;;) pause();
  }
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace hone::e2e
