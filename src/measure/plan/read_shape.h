// ModelShape from what the user has: a model file that hone runs, a config.json (of any architecture whose keys are
// known here, also of those that hone cannot run), or a public name.
#pragma once

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/json_config.h"
#include "measure/plan/model_shape.h"
#include "measure/plan/stored_formats.h"
#include "models/config.h"

namespace hone {

ModelShape ShapeOfConfig(const ModelConfig& config);

// config.json, or its text_config. Errors name the file and the key that is missing or out of range.
Result<ModelShape> ShapeOfJson(const JsonConfig& json);

// A checkpoint's own format: bits of each kind of matrix as they lie in its tensors. REQUIRES: it has tensors.
WeightFormat StoredFormat(const Checkpoint& checkpoint, const ModelShape& shape);

// What to plan for, and in which format unless the user names another.
struct PlannedModel {
  ModelShape shape;
  WeightFormat format;   // of a file: as stored; else bf16
  bool stored = false;   // the format is a file's
  std::string source;    // "file", "config.json", "public shape"
};
// Of an opened checkpoint: a family of hone's if it is one, else its config.json.
Result<PlannedModel> PlannedFromCheckpoint(const Checkpoint& checkpoint);
// A public name, or a path to a config.json. kNotFound if it is neither, with the nearest name.
Result<PlannedModel> PlannedFromName(const std::string& name);

}  // namespace hone
