// See ledger_flags.h.
#include "cli/ledger_flags.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <utility>

namespace hone {
namespace {

constexpr std::string_view kSecrets[] = {"--api-key", "--admin-key", "--header"};

std::string Quote(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("-_./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

void AddLedgerFlags(Flags& flags, LedgerFlags* ledger) {
  const char* group = "Ledger";
  flags
      .Add("--ledger", ledger->file,
           "the ledger that this run is entered into; off for none (default: ledger.sqlite in the user's state folder)")
      ->group(group);
  flags.Add("--label", ledger->label, "a word to find this run by in the ledger")->group(group);
  flags.Add("--parent", ledger->parent, "the ledger's id of the experiment that this one follows")->group(group);
}

std::string QuoteCommand(const std::vector<std::string>& words) {
  std::string out;
  bool secret = false;
  for (std::string word : words) {
    if (std::exchange(secret, false)) word = "***";
    for (const std::string_view flag : kSecrets) {
      if (word == flag) secret = true;
      if (word.size() > flag.size() && word.compare(0, flag.size(), flag) == 0 && word[flag.size()] == '=')
        word = std::string(flag) + "=***";
    }
    out += (out.empty() ? "" : " ") + (word == "***" ? word : Quote(word));
  }
  return out;
}

std::string CommandLineText() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words[0] = "hone";
  return QuoteCommand(words);
}

int64_t EnterRun(const LedgerFlags& flags, const Runtime& runtime, LedgerEntry entry) {
  if (LedgerPath(flags.file).empty()) return 0;
  entry.command = CommandLineText();
  entry.environment = EnvironmentJson(runtime);
  entry.label = flags.label;
  if (flags.parent > 0) entry.parent = flags.parent;
  return Enter(flags.file, std::move(entry), runtime.log);
}

}  // namespace hone
