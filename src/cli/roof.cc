// hone roof: what this machine can do at best, which instruction set each kernel uses, and why not more.

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/ledger_flags.h"
#include "cli/progress.h"
#include "measure/ledger/entries.h"
#include "measure/roof_cache.h"

namespace hone {
namespace {

class RoofCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.AddSwitch("--fresh", fresh_, "measure again, also if this machine's roof is known from an earlier run");
    AddLedgerFlags(flags, &ledger_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    ProgressLine progress("measuring the machine", flags.progress());
    const Roof roof = CachedRoof(runtime->runtime(), fresh_, [&](double share) { progress.Update(share); });
    progress.Clear();
    WriteOut(flags.json ? RoofJson(roof) : RoofTable(roof));
    if (!roof.cached) EnterRun(ledger_, runtime->runtime(), RoofEntry(roof, RoofJson(roof)));
    if (roof.cached && !flags.json && !flags.quiet) {
      runtime->runtime().log->Info("from {}; --fresh measures again", RoofCachePath());
    }
    return kExitDone;
  }

 private:
  bool fresh_ = false;
  LedgerFlags ledger_;
};

}  // namespace

std::unique_ptr<Command> MakeRoofCommand() { return std::make_unique<RoofCommand>(); }

}  // namespace hone
