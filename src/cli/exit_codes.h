// Exit codes of the program, as docs/commands.md lists them.
#pragma once

#include "base/result.h"

namespace hone {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;        // the operation failed
inline constexpr int kExitUsage = 2;         // wrong flags or arguments
inline constexpr int kExitBadInput = 3;      // a file, request or format is not what it should be
inline constexpr int kExitGateFailed = 10;
inline constexpr int kExitGateOpen = 11;     // not enough evidence
inline constexpr int kExitInterrupted = 130;

inline int ExitCodeFor(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound: return kExitBadInput;
    case ErrorCode::kUsage: return kExitUsage;
    case ErrorCode::kCancelled: return kExitInterrupted;
    case ErrorCode::kLimit:
    case ErrorCode::kIo:
    case ErrorCode::kInternal: return kExitFailed;
  }
  return kExitFailed;
}

}  // namespace hone
