#include "ops/xnn_linear.h"

#include <cpuinfo.h>
#include <xnnpack.h>
#include <xnnpack/operator.h>  // private, of the same source: see CreateFromOneRow

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "core/base/checked.h"
#include "core/base/float16.h"

namespace linnet::ops {
namespace {

constexpr uint8_t kQ4ZeroPoint = 8;  // stored q4 values are q + 8

static_assert(sizeof(RowQuantization) == sizeof(xnn_quantization_params));
static_assert(kLinearRowPadding >= XNN_EXTRA_QUANTIZATION_PARAMS);
static_assert(kLinearInputPadding >= XNN_EXTRA_BYTES);

Status FromXnn(xnn_status status, const char* what) {
  switch (status) {
    case xnn_status_success:
      return Status::Ok();
    case xnn_status_out_of_memory:
      return {StatusCode::kOutOfMemory, what, status};
    case xnn_status_unsupported_hardware:
      return {StatusCode::kUnsupported, what, status};
    case xnn_status_invalid_parameter:
      return {StatusCode::kInvalidModel, what, status};
    default:
      return {StatusCode::kInternal, what, status};
  }
}

// XNNPACK asks its "weights cache" where packed bytes are. This one holds exactly one matrix: either a place to pack
// into, or bytes that were packed before. It never allocates, so weights stay where the caller mapped them.
struct SingleMatrixCache {
  xnn_weights_cache_provider provider = {};
  void* address = nullptr;  // the packed bytes
  size_t capacity = 0;      // bytes at address
  bool packed = false;      // address holds packed bytes whose seed is `seed`
  uint32_t seed = 0;
  size_t requested_bytes = 0;  // what XNNPACK asked for last
  std::span<uint16_t> scales;  // q4 with negative scales: the copy that XNNPACK reads, and what it is to pack
  const uint16_t* signed_scales = nullptr;

  SingleMatrixCache() {
    provider.context = this;
    provider.look_up = &LookUp;
    provider.reserve_space = &Reserve;
    provider.look_up_or_insert = &Insert;
    provider.is_finalized = [](void*) { return true; };
    provider.offset_to_addr = [](void* context, size_t) { return static_cast<SingleMatrixCache*>(context)->address; };
    provider.delete_cache = [](void*) { return xnn_status_success; };
  }
  SingleMatrixCache(const SingleMatrixCache&) = delete;
  SingleMatrixCache& operator=(const SingleMatrixCache&) = delete;

  static size_t LookUp(void* context, const xnn_weights_cache_look_up_key* key) {
    auto* cache = static_cast<SingleMatrixCache*>(context);
    if (cache->packed && key->seed == cache->seed) return 0;
    if (!cache->packed) cache->seed = key->seed;
    return SIZE_MAX;
  }
  static void* Reserve(void* context, size_t bytes) {
    auto* cache = static_cast<SingleMatrixCache*>(context);
    cache->requested_bytes = bytes;
    if (cache->signed_scales != nullptr) std::copy_n(cache->signed_scales, cache->scales.size(), cache->scales.data());
    return cache->packed || bytes > cache->capacity ? nullptr : cache->address;
  }
  static size_t Insert(void* context, const xnn_weights_cache_look_up_key*, void*, size_t) {
    static_cast<SingleMatrixCache*>(context)->packed = true;
    return 0;
  }
};

struct Matrix {
  DType dtype = DType::kF32;  // f16 and bf16 have been widened to f32
  size_t n = 0, k = 0;
  uint32_t block_size = 0;
  const void* data = nullptr;
  const void* scales = nullptr;
  size_t output_stride = 0;  // between rows of the product; 0: n
};

Result<xnn_operator_t> CreateOperator(const Matrix& matrix, const float* bias, SingleMatrixCache& cache) {
  xnn_operator_t op = nullptr;
  const size_t stride = matrix.output_stride != 0 ? matrix.output_stride : matrix.n;
  xnn_status status = xnn_status_invalid_parameter;
  switch (matrix.dtype) {
    case DType::kQ8:
      status = xnn_create_fully_connected_nc_qd8_f32_qc8w(matrix.k, matrix.n, matrix.k, stride,
                                                          static_cast<const float*>(matrix.scales),
                                                          static_cast<const int8_t*>(matrix.data), bias, -INFINITY,
                                                          INFINITY, /*flags=*/0, nullptr, &cache.provider, &op);
      break;
    case DType::kQ4:
      status = xnn_create_fully_connected_nc_qd8_f32_qb4w(matrix.k, matrix.n, matrix.k, stride, matrix.block_size,
                                                          kQ4ZeroPoint, static_cast<const uint16_t*>(matrix.scales),
                                                          matrix.data, bias, -INFINITY, INFINITY, /*flags=*/0, nullptr,
                                                          &cache.provider, &op);
      break;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      status = xnn_create_fully_connected_nc_f32(matrix.k, matrix.n, matrix.k, stride,
                                                 static_cast<const float*>(matrix.data), bias, -INFINITY, INFINITY,
                                                 /*flags=*/0, nullptr, &cache.provider, &op);
      break;
  }
  if (status != xnn_status_success) return FromXnn(status, "XNNPACK refused a matrix");
  return op;
}

// XNNPACK's 4-bit kernels for SSE and AVX load a tile's first bytes with aligned instructions, but a tile of four rows
// is a multiple of 16 bytes long only where a row has an even number of blocks. The kernels from AVX2 on load
// unaligned.
bool NeedsEvenBlocks() {
#if defined(__x86_64__) || defined(__i386__)
  return cpuinfo_initialize() && !cpuinfo_has_x86_avx2();
#else
  return false;
#endif
}

// The block size that a q4 matrix is packed with: its own, or half of it with every scale twice.
Result<uint32_t> PackedBlockSize(uint64_t k, uint32_t block_size) {
  if (k / block_size % 2 == 0 || !NeedsEvenBlocks()) return block_size;
  if (block_size / 2 >= XNN_MIN_BLOCKSIZE) return block_size / 2;
  return Status(StatusCode::kUnsupported, "q4 rows of an odd number of blocks of 32 need a CPU with AVX2; use q8",
                static_cast<int64_t>(k));
}

// Replaces the matrix's blocks by the ones that this CPU can run; `scales` holds the doubled scales where needed.
Status UsePackedBlocks(Matrix& matrix, std::vector<uint16_t>& scales) {
  if (matrix.dtype != DType::kQ4) return Status::Ok();
  LINNET_ASSIGN_OR_RETURN(const uint32_t block_size, PackedBlockSize(matrix.k, matrix.block_size));
  if (block_size == matrix.block_size) return Status::Ok();
  const auto* source = static_cast<const uint16_t*>(matrix.scales);
  const size_t n_scales = matrix.n * (matrix.k / matrix.block_size);
  scales.resize(2 * n_scales);
  for (size_t i = 0; i < n_scales; ++i) scales[2 * i] = scales[2 * i + 1] = source[i];
  matrix.scales = scales.data();
  matrix.block_size = block_size;
  return Status::Ok();
}

constexpr uint16_t kBf16SignBit = 0x8000;

// Scales of a q4 matrix may be negative: a block whose largest weight is positive then has it at level -8, as GGUF's
// Q4_0 does it, where a positive scale ends at 7. XNNPACK's kernels and its packing multiply by the scale, whatever its
// sign, but its operator's creation wants positive ones. It therefore sees magnitudes, and the signs come back when it
// asks where to pack, after its checks and before it packs.
void UseMagnitudes(Matrix& matrix, std::vector<uint16_t>& magnitudes, SingleMatrixCache& cache) {
  if (matrix.dtype != DType::kQ4) return;
  const auto* scales = static_cast<const uint16_t*>(matrix.scales);
  const size_t n_scales = matrix.n * (matrix.k / matrix.block_size);
  uint16_t all_bits = 0;  // without an early end the loop is a vector loop: starting reads every scale of the model
  for (size_t i = 0; i < n_scales; ++i) all_bits |= scales[i];
  if ((all_bits & kBf16SignBit) == 0) return;
  magnitudes.resize(n_scales);
  std::transform(scales, scales + n_scales, magnitudes.begin(),
                 [](uint16_t s) { return static_cast<uint16_t>(s & ~kBf16SignBit); });
  cache.signed_scales = scales;
  cache.scales = magnitudes;
  matrix.scales = magnitudes.data();
}

Matrix GroupOf(const TensorView& weight, uint64_t group) {
  const uint64_t n = weight.rows(), k = weight.columns();
  const uint64_t data_bytes = weight.data.size() / weight.groups();
  const uint64_t scale_bytes = weight.scales.size() / weight.groups();
  return {.dtype = weight.dtype,
          .n = n,
          .k = k,
          .block_size = weight.block_size,
          .data = weight.data.data() + group * data_bytes,
          .scales = weight.scales.data() + group * scale_bytes};
}

void Widen(DType dtype, const void* data, std::vector<float>& out) {
  const auto* halves = static_cast<const uint16_t*>(data);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = dtype == DType::kF16 ? F32FromF16(halves[i]) : F32FromBF16(halves[i]);
  }
}

// Asks XNNPACK how many bytes it would reserve, by refusing to give them.
Result<uint64_t> ProbeBytes(DType dtype, uint64_t n, uint64_t k, uint32_t block_size) {
  std::vector<float> q8_scales;
  std::vector<uint16_t> q4_scales;
  const void* scales = nullptr;
  if (dtype == DType::kQ8) scales = (q8_scales.assign(n, 1.0f), q8_scales.data());
  if (dtype == DType::kQ4) scales = (q4_scales.assign(n * (k / block_size), BF16FromF32(1.0f)), q4_scales.data());
  SingleMatrixCache cache;
  const Matrix matrix = {.dtype = dtype, .n = n, .k = k, .block_size = block_size, .data = &cache, .scales = scales};
  const Result<xnn_operator_t> op = CreateOperator(matrix, nullptr, cache);
  LINNET_CHECK(!op.ok());  // nothing was reserved, so nothing can have been created
  if (cache.requested_bytes == 0) return op.status();
  return AlignUp(cache.requested_bytes, kPackedAlignment);  // XNNPACK rounds up to 16 on ARM, to 64 on x86
}

struct Fnv128 {
  // Two 64-bit FNV-1a sums with different offsets: a fingerprint against accidents, not against forgery.
  uint64_t low = 0xcbf29ce484222325u, high = 0x84222325cbf29ce4u;
  void Add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) {
      low = (low ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
      high = (high ^ (static_cast<uint64_t>(b) + 0x9e)) * 0x100000001b3u;
    }
  }
};

Status AddSample(DType dtype, uint32_t block_size, Fnv128& hash) {
  constexpr size_t kRows = 37, kColumns = 256;  // no multiple of any tile's rows; two of the largest block
  std::vector<std::byte> data(kRows * kColumns * DTypeBits(dtype) / 8);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>((i * 37 + 11) & 0x3f);
  std::vector<float> q8_scales(kRows);
  std::vector<uint16_t> q4_scales(kRows * kColumns / 32);
  for (size_t i = 0; i < kRows; ++i) q8_scales[i] = 0.5f + static_cast<float>(i) / 64.0f;
  for (size_t i = 0; i < q4_scales.size(); ++i) q4_scales[i] = static_cast<uint16_t>(0x3f00 + i % 64);
  TensorView sample;
  sample.dtype = dtype;
  sample.rank = 2;
  sample.dims = {kRows, kColumns, 0};
  sample.block_size = block_size;
  sample.data = data;
  if (dtype == DType::kQ8) sample.scales = std::as_bytes(std::span(q8_scales));
  if (dtype == DType::kQ4) {
    sample.scales = std::as_bytes(std::span(q4_scales).first(kRows * kColumns / block_size));
  }
  LINNET_ASSIGN_OR_RETURN(const uint64_t bytes, PackedMatrixBytes(dtype, kRows, kColumns, block_size));
  std::vector<std::byte> storage(bytes + kPackedAlignment);
  auto* aligned = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uintptr_t>(storage.data()), kPackedAlignment));
  LINNET_ASSIGN_OR_RETURN(const uint32_t seed, PackMatrix(sample, 0, nullptr, {aligned, bytes}));
  hash.Add({aligned, bytes});
  hash.Add(std::as_bytes(std::span(&seed, 1)));
  return Status::Ok();
}

}  // namespace

Status InitializeXnnpack() { return FromXnn(xnn_initialize(nullptr), "XNNPACK cannot run on this CPU"); }

Result<uint64_t> PackedMatrixBytes(DType dtype, uint64_t n, uint64_t k, uint32_t block_size) {
  // XNNPACK packs tiles of rows, each row `stride` bytes. Both follow from two small probes, so that asking costs
  // nothing that grows with n (its check of every block's scale would). Few rows may get a kernel of their own.
  constexpr uint64_t kProbeRows = 512;  // a multiple of every tile's rows
  constexpr uint64_t kFewRows = 64;     // no less than any tile's rows
  LINNET_RETURN_IF_ERROR(InitializeXnnpack());
  if (dtype == DType::kQ4) {
    LINNET_ASSIGN_OR_RETURN(block_size, PackedBlockSize(k, block_size));
  }
  if (n <= kFewRows) return ProbeBytes(dtype, n, k, block_size);
  LINNET_ASSIGN_OR_RETURN(const uint64_t whole, ProbeBytes(dtype, kProbeRows, k, block_size));
  LINNET_ASSIGN_OR_RETURN(const uint64_t more, ProbeBytes(dtype, kProbeRows + 1, k, block_size));
  const uint64_t stride = whole / kProbeRows;
  const uint64_t tile = std::bit_floor((more - whole) / stride);  // the quotient is a little larger by alignment
  LINNET_ASSIGN_OR_RETURN(const uint64_t bytes, CheckedMul(CeilDiv(n, tile) * tile, stride));
  return AlignUp(bytes, kPackedAlignment);
}

Result<std::array<uint8_t, 16>> PackingFingerprint() {
  Fnv128 hash;
  LINNET_RETURN_IF_ERROR(AddSample(DType::kF32, 0, hash));
  LINNET_RETURN_IF_ERROR(AddSample(DType::kQ8, 0, hash));
  for (const uint32_t block_size : {32u, 64u, 128u}) {
    LINNET_RETURN_IF_ERROR(AddSample(DType::kQ4, block_size, hash));
  }
  std::array<uint8_t, 16> fingerprint;
  std::memcpy(fingerprint.data(), &hash.low, 8);
  std::memcpy(fingerprint.data() + 8, &hash.high, 8);
  return fingerprint;
}

Result<uint32_t> PackMatrix(const TensorView& weight, uint64_t group, const float* bias, std::span<std::byte> packed) {
  LINNET_RETURN_IF_ERROR(InitializeXnnpack());
  Matrix matrix = GroupOf(weight, group);
  std::vector<uint16_t> doubled_scales;
  LINNET_RETURN_IF_ERROR(UsePackedBlocks(matrix, doubled_scales));
  std::vector<float> widened;
  if (weight.dtype == DType::kF16 || weight.dtype == DType::kBF16) {
    widened.resize(matrix.n * matrix.k);
    Widen(weight.dtype, matrix.data, widened);
    matrix.data = widened.data();
  }
  SingleMatrixCache cache;
  std::vector<uint16_t> magnitudes;
  UseMagnitudes(matrix, magnitudes, cache);
  cache.address = packed.data();
  cache.capacity = packed.size();
  LINNET_ASSIGN_OR_RETURN(const xnn_operator_t op, CreateOperator(matrix, bias, cache));
  xnn_delete_operator(op);
  if (AlignUp(cache.requested_bytes, kPackedAlignment) != packed.size()) {
    return Status(StatusCode::kInternal, "a packed matrix has another size than planned",
                  static_cast<int64_t>(cache.requested_bytes));
  }
  return cache.seed;
}

struct Linear::Impl {
  SingleMatrixCache cache;
  xnn_operator_t op = nullptr;
  DType dtype = DType::kF32;
  size_t shaped_rows = 0;  // rows that the operator is shaped for; 0: none yet
  const ThreadPool* shaped_pool = nullptr;

  ~Impl() {
    if (op != nullptr) xnn_delete_operator(op);
  }
  Status Shape(size_t n_rows, pthreadpool* pool);
  Status SetUp(const LinearInput& input, float* out);
};

Linear::Linear(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;
Linear::~Linear() = default;

bool Linear::quantized_input() const { return IsQuantized(impl_->dtype); }

namespace {

// An operator over packed bytes, made as one of a single row and then told its number of rows. XNNPACK reads every
// scale of a matrix whenever an operator is created, to check it; those of a packed matrix were checked when it was
// packed, and reading them again would take a third of a start and bring pages in that no step uses. Null where the
// operator is not what XNNPACK's private header says, or the bytes are of another kernel.
xnn_operator_t CreateFromOneRow(const Matrix& matrix, SingleMatrixCache& cache) {
  std::vector<uint16_t> q4_scales;
  const float q8_scale = 1.0f;
  Matrix row = matrix;
  row.n = 1;
  row.data = &cache;  // not read
  row.scales = &q8_scale;
  if (matrix.dtype == DType::kQ4) {
    q4_scales.assign(matrix.k / matrix.block_size, BF16FromF32(1.0f));
    row.scales = q4_scales.data();
  }
  row.output_stride = matrix.n;
  // The seed is made of the numbers of rows and columns and of the kernel's tile by exclusive or.
  const uint32_t seed = cache.seed;
  cache.seed ^= static_cast<uint32_t>(matrix.n) ^ 1u;
  const Result<xnn_operator_t> op = CreateOperator(row, nullptr, cache);
  cache.seed = seed;
  if (!op.ok()) return nullptr;
  xnn_operator& made = *op.value();
  if (made.group_output_channels == 1 && made.group_input_channels == matrix.k &&
      made.output_pixel_stride == matrix.n && made.weights_cache == &cache.provider) {
    made.group_output_channels = matrix.n;
    return op.value();
  }
  xnn_delete_operator(op.value());
  return nullptr;
}

}  // namespace

uint64_t LinearHeapBytes() {
  constexpr uint64_t kBlockOverhead = 16;  // what an allocator keeps beside a block
  return sizeof(Linear) + sizeof(Linear::Impl) + kBlockOverhead + sizeof(xnn_operator) + XNN_ALLOCATION_ALIGNMENT +
         kBlockOverhead;
}

Result<Linear> Linear::Create(const TensorView& weight, uint64_t group, std::span<const std::byte> packed,
                              uint32_t seed) {
  LINNET_RETURN_IF_ERROR(InitializeXnnpack());
  auto impl = std::unique_ptr<Impl>(new (std::nothrow) Impl);
  if (impl == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for an operator");
  // XNNPACK's interface is not const; with `packed` set it only reads.
  impl->cache.address = const_cast<std::byte*>(packed.data());
  impl->cache.capacity = packed.size();
  impl->cache.packed = true;
  impl->cache.seed = seed;
  impl->dtype = weight.dtype;
  Matrix matrix = GroupOf(weight, group);
  if (IsQuantized(weight.dtype)) {
    Matrix blocks = matrix;
    if (weight.dtype == DType::kQ4) {
      LINNET_ASSIGN_OR_RETURN(blocks.block_size, PackedBlockSize(matrix.k, matrix.block_size));
    }
    impl->op = CreateFromOneRow(blocks, impl->cache);
    if (impl->op != nullptr) return Linear(std::move(impl));
  }
  std::vector<uint16_t> doubled_scales;
  LINNET_RETURN_IF_ERROR(UsePackedBlocks(matrix, doubled_scales));
  std::vector<uint16_t> magnitudes;
  UseMagnitudes(matrix, magnitudes, impl->cache);
  const Result<xnn_operator_t> op = CreateOperator(matrix, nullptr, impl->cache);
  impl->cache.signed_scales = nullptr;  // the copy ends here
  impl->cache.scales = {};
  if (!op.ok() && op.status().code() == StatusCode::kOutOfMemory && impl->cache.requested_bytes != 0) {
    return Status(StatusCode::kInvalidModel, "packed weights are of another kernel", seed);
  }
  LINNET_RETURN_IF_ERROR(op.status());
  impl->op = op.value();
  return Linear(std::move(impl));
}

Status Linear::Impl::Shape(size_t n_rows, pthreadpool* pool) {
  switch (dtype) {
    case DType::kQ8:
      return FromXnn(xnn_reshape_fully_connected_nc_qd8_f32_qc8w(op, n_rows, pool), "XNNPACK: reshape");
    case DType::kQ4:
      return FromXnn(xnn_reshape_fully_connected_nc_qd8_f32_qb4w(op, n_rows, pool), "XNNPACK: reshape");
    default:
      return FromXnn(xnn_reshape_fully_connected_nc_f32(op, n_rows, pool), "XNNPACK: reshape");
  }
}

Status Linear::Impl::SetUp(const LinearInput& input, float* out) {
  const auto* rows = reinterpret_cast<const xnn_quantization_params*>(input.rows);
  if (rows != nullptr) std::fill_n(input.rows + shaped_rows, kLinearRowPadding, input.rows[shaped_rows - 1]);
  switch (dtype) {
    case DType::kQ8:
      return FromXnn(xnn_setup_fully_connected_nc_qd8_f32_qc8w(op, input.int8, out, rows), "XNNPACK: setup");
    case DType::kQ4:
      return FromXnn(xnn_setup_fully_connected_nc_qd8_f32_qb4w(op, input.int8, out, rows), "XNNPACK: setup");
    default:
      return FromXnn(xnn_setup_fully_connected_nc_f32(op, input.f32, out), "XNNPACK: setup");
  }
}

Status Linear::Run(const LinearInput& input, size_t n_rows, float* out, ThreadPool& pool) {
  if (impl_->shaped_rows != n_rows || impl_->shaped_pool != &pool) {
    LINNET_RETURN_IF_ERROR(impl_->Shape(n_rows, pool.handle()));
    impl_->shaped_rows = n_rows;
    impl_->shaped_pool = &pool;
  }
  LINNET_RETURN_IF_ERROR(impl_->SetUp(input, out));
  return FromXnn(xnn_run_operator(impl_->op, pool.handle()), "XNNPACK: run");
}

}  // namespace linnet::ops
