#include "formats/huggingface/families/families.h"

#include <string>

namespace linnet::formats {
namespace {

using Table = std::span<const Family> (*)();
constexpr Table kTables[] = {LlamaFamilies, GptFamilies,     PhiFamilies,      FalconFamilies,
                             GemmaFamilies, MixtureFamilies, DeepSeekFamilies, CohereFamilies};

std::string JoinNames() {
  std::string names;
  for (const Table table : kTables) {
    for (const Family& family : table()) names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return names;
}

}  // namespace

const Family* FindFamily(std::string_view model_type) {
  for (const Table table : kTables) {
    for (const Family& family : table()) {
      if (model_type == family.model_type) return &family;
    }
  }
  return nullptr;
}

const char* FamilyNames() {
  static const std::string names = JoinNames();
  return names.c_str();
}

}  // namespace linnet::formats
