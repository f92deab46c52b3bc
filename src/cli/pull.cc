// hone pull: a model from a hub to a local copy, whose path is the result.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/hub.h"
#include "cli/progress.h"

namespace hone {
namespace {

class PullCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "OWNER/NAME, or OWNER/NAME:FILE for one file of it; from HONE_HUB with the token in HF_TOKEN, to HONE_MODELS (~/.cache/hone/models)")->required();
  }

  Result<int> Run(const CommonFlags& flags) override {
    const std::optional<HubName> name = ParseHubName(model_);
    if (!name) return UsageError("\"" + model_ + "\" is not OWNER/NAME or OWNER/NAME:FILE");
    HONE_TRY(HubOptions options, HubOptionsFromEnvironment());
    std::unique_ptr<ProgressLine> line;
    std::string shown;
    options.progress = [&](const std::string& file, uint64_t done, uint64_t total) {
      if (line == nullptr || shown != file) line = std::make_unique<ProgressLine>(file, flags.progress()), shown = file;
      line->Update(done, total);
    };
    const Result<std::string> path = PullFromHub(options, *name);
    line.reset();
    if (!path) return path.error();
    if (flags.json)
      std::puts(nlohmann::ordered_json({{"path", *path}}).dump().c_str());
    else
      std::puts(path->c_str());
    return kExitDone;
  }

 private:
  std::string model_;
};

}  // namespace

std::unique_ptr<Command> MakePullCommand() { return std::make_unique<PullCommand>(); }

}  // namespace hone
