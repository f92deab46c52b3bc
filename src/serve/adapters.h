// The adapters that a model of the server has, by the names that `model` of a request may say. A request looks a name up in the
// map that was there when it began, and holds the adapter to its end; loading and unloading put another map in its place.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "models/model.h"

namespace hone {

using AdapterMap = std::map<std::string, std::shared_ptr<const Adapter>>;

// Thread-safe.
class AdapterNames {
 public:
  std::shared_ptr<const AdapterMap> get() const {
    std::lock_guard lock(mutex_);
    return map_;
  }
  void Set(const std::string& name, std::shared_ptr<const Adapter> adapter) {  // null: the name is gone
    std::lock_guard lock(mutex_);
    AdapterMap map = *map_;
    if (adapter == nullptr) map.erase(name);
    else map[name] = std::move(adapter);
    map_ = std::make_shared<const AdapterMap>(std::move(map));
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const AdapterMap> map_ = std::make_shared<const AdapterMap>();
};

inline uint64_t AdapterBytes(const AdapterMap& adapters) {
  uint64_t bytes = 0;
  for (const auto& [name, adapter] : adapters) bytes += adapter->info().bytes;
  return bytes;
}

}  // namespace hone
