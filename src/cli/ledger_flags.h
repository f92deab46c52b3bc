// The flags of commands whose runs are entered into the ledger, and the entering itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "cli/flags.h"
#include "measure/ledger/ledger.h"

namespace hone {

struct LedgerFlags {
  std::string file;  // --ledger; "" the default, "off" none
  std::string label;
  int64_t parent = 0;  // 0: none
};
void AddLedgerFlags(Flags& flags, LedgerFlags* ledger);

// Fills in the command line (without the values of keys), environment, label and parent, and enters the run; a ledger
// that cannot be written is one warning. The id, or 0.
int64_t EnterRun(const LedgerFlags& flags, const Runtime& runtime, LedgerEntry entry);

// This process's command line, quoted where a shell needs it. What follows a flag that holds a secret is "***".
std::string CommandLineText();
std::string QuoteCommand(const std::vector<std::string>& words);

}  // namespace hone
