// The same through the public C++ headers.
#include <cstdio>

#include "core/packed_weights.h"
#include "core/plan.h"
#include "core/session.h"
#include "formats/linnet/model_file.h"
#include "ops/thread_pool.h"
#include "platforms/mapped_output.h"

namespace {

linnet::Status Run(const char* path, linnet::Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const auto file, linnet::formats::ModelFile::Open(path, diagnostic));
  const linnet::ModelView model = file.view();
  LINNET_ASSIGN_OR_RETURN(linnet::Plan plan, linnet::MakePlan(model, {}));
  LINNET_ASSIGN_OR_RETURN(auto packed, linnet::platform::AnonymousMemory::Create(plan.packed.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(linnet::PackWeights(model, plan.packed, packed.bytes(), {}));
  LINNET_ASSIGN_OR_RETURN(auto pool, linnet::ops::ThreadPool::Create(plan.options.n_threads));
  LINNET_ASSIGN_OR_RETURN(auto session, linnet::Session::Create(model, std::move(plan), packed.bytes(), pool));
  LINNET_RETURN_IF_ERROR(session.Decode(1));
  std::printf("%llu\n", static_cast<unsigned long long>(session.plan().memory.kv_cache));
  return linnet::Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  linnet::Diagnostic diagnostic;
  const linnet::Status status = Run(argv[1], &diagnostic);
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", status.message(), diagnostic.text());
  return status.ok() ? 0 : 1;
}
