// fuzzes: formats
// LoRA adapters. The first byte chooses: 0 a GGUF file; else a PEFT folder, whose configuration is what stands before the first
// zero byte, and whose tensors are what follows. What opens has pairs that fit each other, and all their numbers can be read.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/lora.h"

namespace {

const std::string& Folder() {
  static const std::string kFolder = [] {
    std::string folder = "/dev/shm/lora_fuzz_" + std::to_string(getpid());
    mkdir(folder.c_str(), 0700);
    return folder;
  }();
  return kFolder;
}

std::string Write(const char* name, std::string_view bytes) {
  const std::string path = Folder() + "/" + name;
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string path = Folder();
  if (data[0] == 0) {
    path = Write("adapter.gguf", bytes);
  } else {
    const size_t end = bytes.find('\0');
    Write("adapter_config.json", bytes.substr(0, end));
    Write("adapter_model.safetensors", end == std::string_view::npos ? "" : bytes.substr(end + 1));
  }
  const auto file = hone::LoraFile::Open(path);
  if (!file) {
    HONE_CHECK(!file.error().message.empty());
    return 0;
  }
  HONE_CHECK(!(*file)->pairs().empty());
  for (const hone::LoraPair& pair : (*file)->pairs()) {
    HONE_CHECK(pair.a.shape.rank() == 2 && pair.b.shape.rank() == 2 && pair.a.shape[0] == pair.b.shape[1]);
    HONE_CHECK(pair.rank() >= 1 && pair.rank() <= hone::kMaxLoraRank && std::isfinite(pair.scale));
  }
  HONE_CHECK((*file)->ContentId().size() == 32);  // reads every byte
  return 0;
}
