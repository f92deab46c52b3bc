// PromptChoices: `count` choices of an answer with one prompt, which is computed once.
#pragma once

#include "engine/engine.h"

namespace hone {

struct PromptChoices {
  SequenceRequest sequence;
  int count = 1;
};

}  // namespace hone
