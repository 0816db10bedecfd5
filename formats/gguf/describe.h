// GGUF metadata -> the block description.
#ifndef LINNET_FORMATS_GGUF_DESCRIBE_H_
#define LINNET_FORMATS_GGUF_DESCRIBE_H_

#include "core/base/diagnostic.h"
#include "core/base/model_config.h"
#include "core/base/status.h"
#include "formats/gguf/architectures.h"
#include "formats/gguf/gguf_set.h"

namespace linnet::formats {

/// Describes the model of `files`, whose general.architecture is `architecture`. Which biases, gates, sinks and
/// experts a layer has is read from its tensors' presence, everything else from the metadata and the row.
/// Errors: kInvalidModel (a key that is missing, of another type or out of range), kUnsupported (a key that nobody
/// knows, a value that the description cannot say), each naming the key.
Result<ModelConfig> DescribeGgufModel(const GgufSet& files, const GgufArchitecture& architecture,
                                      Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_DESCRIBE_H_
