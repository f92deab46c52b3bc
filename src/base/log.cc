// spdlog behind one class, so that its headers are compiled once.
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace hone {

struct Log::Sink {
  spdlog::logger logger{"hone", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
};

Log::Log(LogLevel level) : level_(level), sink_(std::make_unique<Sink>()) {
  sink_->logger.set_pattern("%^%L%$ %H:%M:%S.%e %v");
  sink_->logger.set_level(spdlog::level::debug);
}

Log::~Log() = default;

void Log::Write(LogLevel level, std::string_view message) {
  switch (level) {
    case LogLevel::kDebug: sink_->logger.debug("{}", message); break;
    case LogLevel::kInfo: sink_->logger.info("{}", message); break;
    case LogLevel::kWarn: sink_->logger.warn("{}", message); break;
    case LogLevel::kError: sink_->logger.error("{}", message); break;
    case LogLevel::kOff: break;
  }
}

}  // namespace hone
