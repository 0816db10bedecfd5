// Small valid descriptions for tests of what reads descriptions.
#ifndef LINNET_TESTS_SUPPORT_SMALL_CONFIG_H_
#define LINNET_TESTS_SUPPORT_SMALL_CONFIG_H_

#include "core/base/model_config.h"

namespace linnet::testing {

/// Two equal layers: RMSNorm before, 4 heads of 16 over 2 kv heads, rotated, gated FFN of 96, 64 wide, untied head.
ModelConfig SmallConfig();
/// The same with 8 experts, 3 chosen, and a shared one in its second layer.
ModelConfig SmallMixtureConfig();
/// The same with latent attention: query latent 32, key and value latent 32, 16 plain and 16 rotated values a head.
ModelConfig SmallLatentConfig();

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_SMALL_CONFIG_H_
