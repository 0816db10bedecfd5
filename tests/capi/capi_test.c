/* The C API from C99, with every failure that a caller can cause.
   capi_test MODEL FOLDER: a model of the tests' tiny checkpoint (260 tokens, bytes first; context 256) and an empty
   folder. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/capi/check.h"

enum { VOCAB = 260, BOS = 256, EOS = 257, CONTEXT = 256 };

static const char* g_path;
static const char* g_folder;
static char g_log[2048];
static int g_log_lines;

static void Log(void* context, linnet_log_level level, const char* line) {
  CHECK(context == g_log);
  CHECK(level == LINNET_LOG_WARNING || level == LINNET_LOG_INFO);
  CHECK(strchr(line, '\n') == NULL);
  snprintf(g_log, sizeof(g_log), "%s", line);
  ++g_log_lines;
}

static const char* InFolder(const char* name) {
  static char path[4096];
  snprintf(path, sizeof(path), "%s/%s", g_folder, name);
  return path;
}

static linnet_model* Open(void) {
  linnet_model* model = NULL;
  CHECK_OK(linnet_model_open(g_path, NULL, &model, &g_error));
  return model;
}

static linnet_model* OpenLoaded(void) {
  linnet_model* model = Open();
  CHECK_OK(linnet_model_load(model, NULL, &g_error));
  return model;
}

static linnet_session* NewSession(const linnet_model* model, uint32_t context, uint32_t chunk) {
  linnet_session* session = NULL;
  linnet_session_options options = {0};
  options.struct_size = sizeof(options);
  options.context_tokens = context;
  options.chunk_tokens = chunk;
  options.n_threads = 2;
  CHECK_OK(linnet_session_create(model, &options, &session, &g_error));
  return session;
}

static char* ReadWhole(const char* path, size_t* bytes) {
  struct stat info;
  FILE* file = fopen(path, "rb");
  char* content;
  if (file == NULL || fstat(fileno(file), &info) != 0) abort();
  *bytes = (size_t)info.st_size;
  content = malloc(*bytes);
  if (content == NULL || fread(content, 1, *bytes, file) != *bytes) abort();
  fclose(file);
  return content;
}

static void WriteFile(const char* path, size_t lead, const char* content, size_t bytes, size_t tail) {
  FILE* file = fopen(path, "wb");
  size_t i;
  if (file == NULL) abort();
  for (i = 0; i < lead; ++i) fputc('x', file);
  if (fwrite(content, 1, bytes, file) != bytes) abort();
  for (i = 0; i < tail; ++i) fputc('y', file);
  if (fclose(file) != 0) abort();
}

static void TestVersionsAndNames(void) {
  CHECK(linnet_api_version() == LINNET_API_VERSION);
  CHECK(strchr(linnet_version(), '.') != NULL);
  CHECK(strcmp(linnet_status_name(LINNET_INVALID_MODEL), "invalid model") == 0);
  CHECK(strcmp(linnet_status_name(LINNET_BUFFER_TOO_SMALL), "buffer too small") == 0);
  CHECK(strcmp(linnet_status_name(-1), "unknown status") == 0);
  CHECK(strcmp(linnet_status_name(1000), "unknown status") == 0);
}

static void TestNullsAreRefusedEverywhere(void) {
  linnet_model* model = (linnet_model*)&g_error;
  linnet_session* session;
  linnet_sampler* sampler;
  linnet_decoder* decoder;
  linnet_plan plan = {0};
  const char* text;
  size_t n;
  int32_t id = 1;
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_open(NULL, NULL, &model, &g_error));
  CHECK(model == NULL);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_open(g_path, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_open_descriptor(0, 0, 0, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(NULL, NULL, &plan, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_get_info(NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_load(NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_sampler_defaults(NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_tokenize(NULL, "a", 1, 0, &id, 1, &n, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_detokenize(NULL, &id, 1, 0, NULL, 0, &n, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_detokenize(NULL, &id, 1, 0, NULL, 0, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_decoder_create(NULL, 0, &decoder, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_decoder_push(NULL, 1, &text, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_decoder_flush(NULL, &text, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_chat_render(NULL, NULL, 0, NULL, NULL, 0, &n, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_chat_render_json(NULL, "[]", NULL, NULL, 0, &n, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_create(NULL, NULL, &session, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_prefill(NULL, &id, 1, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_set_prompt(NULL, &id, 1, NULL, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_decode(NULL, 1, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_rewind(NULL, 0, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_sampler_create(NULL, NULL, &sampler, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_sampler_sample(NULL, NULL, &id, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_sampler_accept(NULL, &id, 1, &g_error));
  CHECK(linnet_model_is_end(NULL, EOS) == 0);
  CHECK(linnet_session_logits(NULL, &n) == NULL && n == 0);
  CHECK(linnet_session_position(NULL) == 0 && linnet_session_remaining(NULL) == 0);
  linnet_session_cancel(NULL);
  linnet_session_reset_cancel(NULL);
  linnet_sampler_reset(NULL);
  linnet_model_free(NULL);
  linnet_session_free(NULL);
  linnet_sampler_free(NULL);
  linnet_decoder_free(NULL);
  /* Without a place for the error the status is all there is. */
  CHECK(linnet_model_open(NULL, NULL, &model, NULL) == LINNET_INVALID_ARGUMENT);
}

static void TestDamagedFilesAreRefused(void) {
  linnet_model* model = (linnet_model*)&g_error;
  size_t bytes, i;
  char* content = ReadWhole(g_path, &bytes);
  const size_t parts[] = {0, 1, 16, 100, 4096, bytes / 2, bytes - 1};
  CHECK_FAILS(LINNET_IO_ERROR, linnet_model_open(InFolder("no such file"), NULL, &model, &g_error));
  CHECK_SAYS("no such file");
  CHECK(model == NULL);
  CHECK_FAILS(LINNET_IO_ERROR, linnet_model_open(g_folder, NULL, &model, &g_error));
  for (i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
    WriteFile(InFolder("part"), 0, content, parts[i], 0);
    CHECK_FAILS(LINNET_INVALID_MODEL, linnet_model_open(InFolder("part"), NULL, &model, &g_error));
  }
  WriteFile(InFolder("part"), 0, content + 64, bytes - 64, 0);
  CHECK_FAILS(LINNET_INVALID_MODEL, linnet_model_open(InFolder("part"), NULL, &model, &g_error));
  remove(InFolder("part"));
  free(content);
}

static void TestStructsOfOtherSizes(void) {
  linnet_model* model = Open();
  linnet_session_options options = {0};
  linnet_plan plan = {0}, part;
  struct {
    linnet_session_options known;
    uint64_t later;
  } newer = {{0}, 0};
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &options, &plan, &g_error));
  CHECK_SAYS("struct_size");
  options.struct_size = sizeof(options);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &options, &plan, &g_error));
  plan.struct_size = sizeof(plan);
  CHECK_OK(linnet_model_plan(model, &options, &plan, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &options, NULL, &g_error));
  /* A caller of an older version: nothing behind its struct is written. */
  memset(&part, 0x55, sizeof(part));
  memset(&part, 0, offsetof(linnet_plan, n_threads));
  part.struct_size = offsetof(linnet_plan, n_threads);
  CHECK_OK(linnet_model_plan(model, &options, &part, &g_error));
  CHECK(part.context_tokens == CONTEXT && part.n_threads == 0x55555555u);
  /* A caller of a newer version. */
  newer.known.struct_size = sizeof(newer);
  CHECK_OK(linnet_model_plan(model, &newer.known, &plan, &g_error));
  newer.later = 1;
  CHECK_FAILS(LINNET_UNSUPPORTED, linnet_model_plan(model, &newer.known, &plan, &g_error));
  newer.known.struct_size = (size_t)-1;
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &newer.known, &plan, &g_error));
  linnet_model_free(model);
}

static void TestPlanBeforeLoading(void) {
  linnet_model* model = Open();
  linnet_model_info info = {0};
  linnet_session_options options = {0};
  linnet_session* session = NULL;
  linnet_plan small = {0}, large = {0};
  info.struct_size = sizeof(info);
  CHECK_OK(linnet_model_get_info(model, &info, &g_error));
  CHECK(info.vocab_size == VOCAB && info.context_length == CONTEXT && info.n_layers == 2 && info.model_dim == 32);
  CHECK(info.has_tokenizer == 1 && info.has_chat_template == 1 && info.bos_id == BOS);
  CHECK(linnet_model_is_end(model, EOS) && !linnet_model_is_end(model, BOS) && !linnet_model_is_end(model, -1));
  options.struct_size = sizeof(options);
  options.context_tokens = 64;
  options.n_threads = 1;
  small.struct_size = large.struct_size = sizeof(small);
  CHECK_OK(linnet_model_plan(model, &options, &small, &g_error));
  CHECK(small.context_tokens == 64 && small.chunk_tokens == 64 && small.n_threads == 1);
  CHECK(small.kv_type == LINNET_KV_F32 && small.copied_model == 0 && small.packed_weights > 0);
  CHECK(small.total == small.mapped_weights + small.packed_weights + small.tokenizer + small.metadata + small.kv_cache +
                           small.activations + small.scratch + small.logits + small.operators + small.tables +
                           small.thread_stacks + small.sampler);
  options.context_tokens = 128;
  options.kv_type = LINNET_KV_F16;
  CHECK_OK(linnet_model_plan(model, &options, &large, &g_error));
  CHECK(large.kv_cache == small.kv_cache && large.kv_type == LINNET_KV_F16);
  options.kv_type = 4;
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &options, &large, &g_error));
  options.kv_type = 0;
  options.n_threads = 100000;
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &options, &large, &g_error));
  options.n_threads = 1;
  options.context_tokens = 0xffffffffu;
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_plan(model, &options, &large, &g_error));
  CHECK_SAYS("context_tokens: expected at most 16777216, found 4294967295");
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_create(model, NULL, &session, &g_error));
  CHECK_SAYS("linnet_model_load");
  options.context_tokens = 0;
  options.memory_budget = small.total;
  CHECK_OK(linnet_model_plan(model, &options, &large, &g_error));
  CHECK(large.total <= small.total && large.context_tokens < CONTEXT);
  options.memory_budget = 1000;
  CHECK_FAILS(LINNET_OUT_OF_MEMORY, linnet_model_plan(model, &options, &large, &g_error));
  CHECK(g_error.value > 1000);
  linnet_model_free(model);
}

static int StopAtOnce(void* context, uint64_t done, uint64_t total) {
  CHECK(done <= total);
  ++*(int*)context;
  return 0;
}

static int Count(void* context, uint64_t done, uint64_t total) {
  CHECK(done <= total);
  ++*(int*)context;
  return 1;
}

static void* CreateWhileLoading(void* model) {
  linnet_error error;
  linnet_session* session = NULL;
  CHECK(linnet_session_create(model, NULL, &session, &error) == LINNET_INVALID_ARGUMENT && session == NULL);
  return NULL;
}

/* What a callback of linnet_model_load may do with the model: everything but wait for itself. */
static int UseModelBeingLoaded(void* context, uint64_t done, uint64_t total) {
  linnet_model* model = context;
  linnet_plan plan = {0};
  linnet_error error;
  pthread_t thread;
  (void)done;
  (void)total;
  plan.struct_size = sizeof(plan);
  CHECK(linnet_model_plan(model, NULL, &plan, &error) == LINNET_OK);
  CHECK(linnet_model_load(model, NULL, &error) == LINNET_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "callback") != NULL);
  CreateWhileLoading(model);
  CHECK(pthread_create(&thread, NULL, CreateWhileLoading, model) == 0);
  pthread_join(thread, NULL);
  return 1;
}

static void TestCallbacksOfLoading(void) {
  linnet_load_options load = {0};
  linnet_model* model = Open();
  load.struct_size = sizeof(load);
  load.progress = UseModelBeingLoaded;
  load.progress_context = model;
  CHECK_OK(linnet_model_load(model, &load, &g_error));
  CHECK_OK(linnet_model_load(model, NULL, &g_error));
  linnet_session_free(NewSession(model, 32, 4));
  load.cache_folder = "";
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_model_load(model, &load, &g_error));
  CHECK_SAYS("cache_folder");
  linnet_model_free(model);
}

static void TestLoading(void) {
  linnet_model_options options = {0};
  linnet_load_options load = {0};
  linnet_model* model = NULL;
  int calls = 0;
  options.struct_size = sizeof(options);
  options.log = Log;
  options.log_context = g_log;
  CHECK_OK(linnet_model_open(g_path, &options, &model, &g_error));
  load.struct_size = sizeof(load);
  load.cache_folder = InFolder("cache");
  load.progress = StopAtOnce;
  load.progress_context = &calls;
  CHECK_FAILS(LINNET_CANCELLED, linnet_model_load(model, &load, &g_error));
  CHECK(calls == 1);
  load.cache_folder = InFolder("cache");
  load.progress = Count;
  CHECK_OK(linnet_model_load(model, &load, &g_error));
  CHECK(calls > 2);
  linnet_model_free(model);
  /* The packed file is found again. */
  calls = 0;
  CHECK_OK(linnet_model_open(g_path, &options, &model, &g_error));
  CHECK_OK(linnet_model_load(model, &load, &g_error));
  CHECK_OK(linnet_model_load(model, &load, &g_error));
  CHECK(calls == 0 && g_log_lines == 0);
  linnet_model_free(model);
  /* A folder that cannot be made. */
  CHECK_OK(linnet_model_open(g_path, &options, &model, &g_error));
  load.cache_folder = "/dev/null/cache";
  CHECK_OK(linnet_model_load(model, &load, &g_error));
  CHECK(g_log_lines == 1 && strstr(g_log, "/dev/null") != NULL && strstr(g_log, "in memory") != NULL);
  g_log_lines = 0;
  linnet_model_free(model);
}

/* Logits after a few tokens, as a fingerprint of the whole way. */
static void FewLogits(const linnet_model* model, float* out) {
  const int32_t ids[] = {BOS, 'H', 'e', 'l', 'l', 'o'};
  linnet_session* session = NewSession(model, 32, 4);
  size_t count;
  const float* logits;
  CHECK_OK(linnet_session_prefill(session, ids, 6, NULL, NULL, &g_error));
  logits = linnet_session_logits(session, &count);
  CHECK(logits != NULL && count == VOCAB);
  memcpy(out, logits, VOCAB * sizeof(float));
  linnet_session_free(session);
}

static void TestDescriptors(void) {
  static const size_t kLeads[] = {0, 64, 4096, 4096 + 192, 65536, 100, 4097};
  linnet_model_options options = {0};
  linnet_model* model = OpenLoaded();
  float expected[VOCAB], found[VOCAB];
  size_t bytes, i;
  int descriptor, pipe_ends[2];
  char* content = ReadWhole(g_path, &bytes);
  FewLogits(model, expected);
  linnet_model_free(model);
  options.struct_size = sizeof(options);
  options.log = Log;
  options.log_context = g_log;
  for (i = 0; i < sizeof(kLeads) / sizeof(kLeads[0]); ++i) {
    const size_t lead = kLeads[i];
    linnet_plan plan = {0};
    plan.struct_size = sizeof(plan);
    g_log_lines = 0;
    WriteFile(InFolder("apk"), lead, content, bytes, 77);
    descriptor = open(InFolder("apk"), O_RDONLY);
    CHECK_OK(linnet_model_open_descriptor(descriptor, lead, bytes, &options, &model, &g_error));
    close(descriptor);
    CHECK_OK(linnet_model_plan(model, NULL, &plan, &g_error));
    CHECK(plan.copied_model == (lead % 64 == 0 ? 0 : bytes));
    CHECK(g_log_lines == (lead % 64 == 0 ? 0 : 1));
    CHECK_OK(linnet_model_load(model, NULL, &g_error));
    FewLogits(model, found);
    CHECK(memcmp(expected, found, sizeof(found)) == 0);
    linnet_model_free(model);
  }
  WriteFile(InFolder("apk"), 128, content, bytes, 0);
  descriptor = open(InFolder("apk"), O_RDONLY);
  CHECK_OK(linnet_model_open_descriptor(descriptor, 128, 0, NULL, &model, &g_error));
  linnet_model_free(model);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_model_open_descriptor(descriptor, 128, bytes + 1, NULL, &model, &g_error));
  CHECK(model == NULL);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_model_open_descriptor(descriptor, bytes + 129, 0, NULL, &model, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_model_open_descriptor(descriptor, ~(uint64_t)0, 2, NULL, &model, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_model_open_descriptor(descriptor, 128, ~(uint64_t)0, NULL, &model, &g_error));
  CHECK_FAILS(LINNET_INVALID_MODEL, linnet_model_open_descriptor(descriptor, 0, 0, NULL, &model, &g_error));
  CHECK_FAILS(LINNET_INVALID_MODEL, linnet_model_open_descriptor(descriptor, bytes + 128, 0, NULL, &model, &g_error));
  close(descriptor);
  CHECK_FAILS(LINNET_IO_ERROR, linnet_model_open_descriptor(descriptor, 0, 0, NULL, &model, &g_error));
  CHECK(pipe(pipe_ends) == 0);
  CHECK_FAILS(LINNET_INVALID_MODEL, linnet_model_open_descriptor(pipe_ends[0], 0, 0, NULL, &model, &g_error));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  g_log_lines = 0;
  remove(InFolder("apk"));
  free(content);
}

struct Stop {
  linnet_session* session;
  int calls;
  int stop_at;
  int by_cancel;
};

static int StopLater(void* context, uint64_t done, uint64_t total) {
  struct Stop* stop = context;
  linnet_error error;
  CHECK(total == 20 && done % 4 == 0);
  CHECK(linnet_session_position(stop->session) == done);
  /* The session is held by the call that runs. */
  CHECK(linnet_session_decode(stop->session, 1, &error) == LINNET_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "in use") != NULL);
  CHECK(linnet_session_logits(stop->session, NULL) == NULL);
  if (++stop->calls < stop->stop_at) return 1;
  if (!stop->by_cancel) return 0;
  linnet_session_cancel(stop->session);
  return 1;
}

static void TestPrefillIsStopped(const linnet_model* model) {
  int32_t ids[20];
  struct Stop stop = {0};
  size_t i;
  for (i = 0; i < 20; ++i) ids[i] = (int32_t)(i * 7);
  stop.session = NewSession(model, 32, 4);
  stop.stop_at = 2;
  CHECK_FAILS(LINNET_CANCELLED, linnet_session_prefill(stop.session, ids, 20, StopLater, &stop, &g_error));
  CHECK(stop.calls == 2 && linnet_session_position(stop.session) == 8 && linnet_session_remaining(stop.session) == 24);
  CHECK_OK(linnet_session_rewind(stop.session, 0, &g_error));
  stop.calls = 0;
  stop.stop_at = 3;
  stop.by_cancel = 1;
  CHECK_FAILS(LINNET_CANCELLED, linnet_session_prefill(stop.session, ids, 20, StopLater, &stop, &g_error));
  CHECK(stop.calls == 3 && linnet_session_position(stop.session) == 12);
  /* The request stays until it is taken back. */
  CHECK_FAILS(LINNET_CANCELLED, linnet_session_decode(stop.session, 1, &g_error));
  CHECK_FAILS(LINNET_CANCELLED, linnet_session_prefill(stop.session, ids, 20, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_CANCELLED, linnet_session_set_prompt(stop.session, ids, 20, NULL, NULL, NULL, &g_error));
  CHECK(linnet_session_position(stop.session) == 12);
  linnet_session_reset_cancel(stop.session);
  CHECK_OK(linnet_session_set_prompt(stop.session, ids, 20, NULL, NULL, &i, &g_error));
  CHECK(i == 12 && linnet_session_position(stop.session) == 20);
  linnet_session_free(stop.session);
}

static void* CancelSoon(void* session) {
  linnet_session_cancel(session);
  return NULL;
}

static void TestCancelFromAnotherThread(const linnet_model* model) {
  linnet_session* session = NewSession(model, CONTEXT, 1);
  int32_t ids[CONTEXT];
  linnet_status status = LINNET_OK;
  pthread_t thread;
  int i;
  for (i = 0; i < CONTEXT; ++i) ids[i] = i;
  CHECK(pthread_create(&thread, NULL, CancelSoon, session) == 0);
  for (i = 0; i < 1000000 && status == LINNET_OK; ++i) {
    CHECK_OK(linnet_session_rewind(session, 0, &g_error));
    status = linnet_session_prefill(session, ids, CONTEXT, NULL, NULL, &g_error);
  }
  CHECK(status == LINNET_CANCELLED);
  pthread_join(thread, NULL);
  linnet_session_free(session);
}

static void TestContextIsFull(const linnet_model* model) {
  const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const int32_t wrong[] = {1, 2, VOCAB, 4};
  const int32_t negative[] = {-1};
  linnet_session* session = NewSession(model, 8, 4);
  size_t count;
  int i;
  CHECK(linnet_session_remaining(session) == 8 && linnet_session_logits(session, &count) == NULL);
  CHECK_FAILS(LINNET_CONTEXT_FULL, linnet_session_prefill(session, ids, 9, NULL, NULL, &g_error));
  CHECK(g_error.value == 8 && linnet_session_position(session) == 0);
  CHECK_SAYS("found 9");
  CHECK_FAILS(LINNET_CONTEXT_FULL, linnet_session_set_prompt(session, ids, 9, NULL, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_prefill(session, ids, 0, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_prefill(session, NULL, 2, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_set_prompt(session, NULL, 0, NULL, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_prefill(session, wrong, 4, NULL, NULL, &g_error));
  CHECK(g_error.value == 2);
  CHECK_SAYS("found 260");
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_set_prompt(session, wrong, 4, NULL, NULL, NULL, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_decode(session, negative[0], &g_error));
  CHECK_OK(linnet_session_prefill(session, ids, 5, NULL, NULL, &g_error));
  for (i = 0; i < 3; ++i) CHECK_OK(linnet_session_decode(session, i, &g_error));
  CHECK(linnet_session_remaining(session) == 0);
  CHECK_FAILS(LINNET_CONTEXT_FULL, linnet_session_decode(session, 1, &g_error));
  CHECK(g_error.value == 0 && linnet_session_position(session) == 8);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_session_rewind(session, 9, &g_error));
  CHECK_OK(linnet_session_rewind(session, 7, &g_error));
  CHECK_OK(linnet_session_decode(session, 1, &g_error));
  linnet_session_free(session);
}

static void TestPrefixIsReused(const linnet_model* model) {
  const int32_t first[] = {BOS, 10, 11, 12, 13, 14};
  const int32_t second[] = {BOS, 10, 11, 99, 98};
  linnet_session* session = NewSession(model, 32, 4);
  linnet_session* fresh = NewSession(model, 32, 32);
  size_t reused = 77, count;
  int calls = 0;
  CHECK_OK(linnet_session_set_prompt(session, first, 6, NULL, NULL, &reused, &g_error));
  CHECK(reused == 0);
  CHECK_OK(linnet_session_decode(session, 15, &g_error));
  CHECK_OK(linnet_session_set_prompt(session, second, 5, Count, &calls, &reused, &g_error));
  CHECK(reused == 3 && calls == 1 && linnet_session_position(session) == 5);
  CHECK_OK(linnet_session_prefill(fresh, second, 5, NULL, NULL, &g_error));
  CHECK(memcmp(linnet_session_logits(session, &count), linnet_session_logits(fresh, NULL), VOCAB * sizeof(float)) == 0);
  /* The same again: the last token runs once more. */
  CHECK_OK(linnet_session_set_prompt(session, second, 5, NULL, NULL, &reused, &g_error));
  CHECK(reused == 4);
  CHECK(memcmp(linnet_session_logits(session, &count), linnet_session_logits(fresh, NULL), VOCAB * sizeof(float)) == 0);
  linnet_session_free(session);
  linnet_session_free(fresh);
}

static int32_t Greedy(const linnet_session* session) {
  size_t count, i, best = 0;
  const float* logits = linnet_session_logits(session, &count);
  for (i = 1; i < count; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return (int32_t)best;
}

static void TestSampler(const linnet_model* model) {
  const int32_t ids[] = {BOS, 'a', 'b'};
  linnet_sampler_options options = {0};
  linnet_sampler *greedy = NULL, *drawn = NULL;
  linnet_session* session = NewSession(model, 32, 4);
  int32_t id = -1, first[8];
  int i;
  CHECK_OK(linnet_sampler_create(model, NULL, &greedy, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_sampler_sample(greedy, session, &id, &g_error));
  CHECK_OK(linnet_session_prefill(session, ids, 3, NULL, NULL, &g_error));
  CHECK_OK(linnet_sampler_sample(greedy, session, &id, &g_error));
  CHECK(id == Greedy(session));
  options.struct_size = sizeof(options);
  CHECK_OK(linnet_model_sampler_defaults(model, &options, &g_error));
  CHECK(options.temperature == 0.0f && options.top_k == 0 && options.struct_size == sizeof(options));
  options.temperature = 5.0f;
  options.seed = 42;
  CHECK_OK(linnet_sampler_create(model, &options, &drawn, &g_error));
  for (i = 0; i < 8; ++i) CHECK_OK(linnet_sampler_sample(drawn, session, &first[i], &g_error));
  CHECK(first[0] != first[1] || first[1] != first[2] || first[2] != first[3]);
  linnet_sampler_reset(drawn);
  for (i = 0; i < 8; ++i) {
    CHECK_OK(linnet_sampler_sample(drawn, session, &id, &g_error));
    CHECK(id == first[i]);
  }
  CHECK_OK(linnet_sampler_accept(drawn, ids, 3, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_sampler_accept(drawn, NULL, 1, &g_error));
  linnet_sampler_free(drawn);
  drawn = (linnet_sampler*)&g_error;
  options.top_p = -0.5f;
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_sampler_create(model, &options, &drawn, &g_error));
  CHECK(drawn == NULL);
  CHECK_SAYS("top_p");
  linnet_sampler_free(greedy);
  linnet_session_free(session);
}

static void TestTexts(const linnet_model* model) {
  static const char kText[] = "caf\xc3\xa9 \xf0\x9f\x98\x80!";
  int32_t ids[64];
  char text[64];
  const char* piece;
  linnet_decoder* decoder = NULL;
  size_t count = 0, bytes = 0, i;
  CHECK_FAILS(LINNET_BUFFER_TOO_SMALL, linnet_tokenize(model, kText, strlen(kText), 0, NULL, 0, &count, &g_error));
  CHECK(count == strlen(kText) && g_error.value == (int64_t)count);
  CHECK_FAILS(LINNET_BUFFER_TOO_SMALL, linnet_tokenize(model, kText, strlen(kText), 0, ids, 3, &count, &g_error));
  CHECK_OK(linnet_tokenize(model, kText, strlen(kText), 0, ids, 64, &count, &g_error));
  CHECK(count == strlen(kText) && ids[0] == 'c');
  CHECK_OK(linnet_detokenize(model, ids, count, 0, text, sizeof(text), &bytes, &g_error));
  CHECK(bytes == strlen(kText) && strcmp(text, kText) == 0);
  CHECK_FAILS(LINNET_BUFFER_TOO_SMALL, linnet_detokenize(model, ids, count, 0, text, bytes, &bytes, &g_error));
  CHECK(bytes == strlen(kText) && g_error.value == (int64_t)bytes + 1);
  /* In a stream, every piece is whole code points. */
  CHECK_OK(linnet_decoder_create(model, 0, &decoder, &g_error));
  text[0] = '\0';
  for (i = 0; i < count; ++i) {
    CHECK_OK(linnet_decoder_push(decoder, ids[i], &piece, &bytes, &g_error));
    CHECK(bytes == strlen(piece) && ((unsigned char)piece[0] & 0xc0) != 0x80);
    strcat(text, piece);
  }
  CHECK(strcmp(text, kText) == 0);
  CHECK_OK(linnet_decoder_push(decoder, 0xf0, &piece, NULL, &g_error));
  CHECK(piece[0] == '\0');
  CHECK_OK(linnet_decoder_flush(decoder, &piece, NULL, &g_error));
  CHECK(strcmp(piece, "\xef\xbf\xbd") == 0);
  CHECK_OK(linnet_decoder_push(decoder, 'z', &piece, NULL, &g_error));
  CHECK(strcmp(piece, "z") == 0);
  linnet_decoder_free(decoder);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_decoder_create(model, 1u << 9, &decoder, &g_error));
  /* Special tokens count only where they are asked for. */
  CHECK_OK(linnet_tokenize(model, "</s>", 4, 0, ids, 64, &count, &g_error));
  CHECK(count == 4);
  CHECK_OK(linnet_tokenize(model, "</s>", 4, LINNET_ENCODE_PARSE_SPECIAL, ids, 64, &count, &g_error));
  CHECK(count == 1 && ids[0] == EOS);
  CHECK_OK(linnet_detokenize(model, ids, 1, 0, text, sizeof(text), &bytes, &g_error));
  CHECK(bytes == 0);
  CHECK_OK(linnet_detokenize(model, ids, 1, LINNET_DECODE_KEEP_SPECIAL, text, sizeof(text), &bytes, &g_error));
  CHECK(strcmp(text, "</s>") == 0);
  CHECK_OK(linnet_tokenize(model, NULL, 0, 0, NULL, 0, &count, &g_error));
  CHECK(count == 0);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_tokenize(model, NULL, 3, 0, ids, 64, &count, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_tokenize(model, "a", 1, 64, ids, 64, &count, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_tokenize(model, "a", 1, 0, ids, 64, NULL, &g_error));
}

static void TestChatTemplate(const linnet_model* model) {
  static const char kExpected[] = "<s><|user|>Hi</s><|assistant|>";
  const linnet_chat_message messages[] = {{"user", "Hi"}, {"user", NULL}};
  linnet_chat_options options = {0};
  char text[128];
  size_t bytes = 0;
  CHECK_OK(linnet_chat_render(model, messages, 1, NULL, text, sizeof(text), &bytes, &g_error));
  CHECK(bytes == strlen(kExpected) && strcmp(text, kExpected) == 0);
  CHECK_FAILS(LINNET_BUFFER_TOO_SMALL, linnet_chat_render(model, messages, 1, NULL, text, 5, &bytes, &g_error));
  CHECK(bytes == strlen(kExpected));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_chat_render(model, messages, 2, NULL, text, sizeof(text), &bytes, &g_error));
  CHECK_FAILS(LINNET_INVALID_ARGUMENT, linnet_chat_render(model, NULL, 1, NULL, text, sizeof(text), &bytes, &g_error));
  options.struct_size = sizeof(options);
  options.no_generation_prompt = 1;
  CHECK_OK(linnet_chat_render(model, messages, 1, &options, text, sizeof(text), &bytes, &g_error));
  CHECK(strcmp(text, "<s><|user|>Hi</s>") == 0);
  CHECK_OK(linnet_chat_render_json(model, "[{\"role\": \"user\", \"content\": \"Hi\"}]", NULL, text, sizeof(text),
                                   &bytes, &g_error));
  CHECK(strcmp(text, kExpected) == 0);
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_chat_render_json(model, "[{", NULL, text, sizeof(text), &bytes, &g_error));
  options.tools_json = "{";
  CHECK_FAILS(LINNET_INVALID_ARGUMENT,
              linnet_chat_render(model, messages, 1, &options, text, sizeof(text), &bytes, &g_error));
}

static void TestHandlesMayBeFreedInAnyOrder(void) {
  const int32_t ids[] = {BOS, 'o', 'k'};
  linnet_model* model = OpenLoaded();
  linnet_session* session = NewSession(model, 32, 4);
  linnet_sampler* sampler = NULL;
  linnet_decoder* decoder = NULL;
  const char* piece;
  int32_t id;
  CHECK_OK(linnet_sampler_create(model, NULL, &sampler, &g_error));
  CHECK_OK(linnet_decoder_create(model, 0, &decoder, &g_error));
  linnet_model_free(model);
  CHECK_OK(linnet_session_prefill(session, ids, 3, NULL, NULL, &g_error));
  CHECK_OK(linnet_sampler_sample(sampler, session, &id, &g_error));
  CHECK_OK(linnet_session_decode(session, id, &g_error));
  CHECK_OK(linnet_decoder_push(decoder, 'k', &piece, NULL, &g_error));
  linnet_session_free(session);
  linnet_sampler_free(sampler);
  CHECK_OK(linnet_decoder_push(decoder, 'k', &piece, NULL, &g_error));
  linnet_decoder_free(decoder);
}

struct Worker {
  const linnet_model* model;
  float logits[VOCAB];
};

static void* Work(void* context) {
  const int32_t ids[] = {BOS, 'H', 'e', 'l', 'l', 'o'};
  struct Worker* worker = context;
  linnet_session* session = NULL;
  linnet_error error;
  size_t count;
  if (linnet_session_create(worker->model, NULL, &session, &error) != LINNET_OK) return NULL;
  if (linnet_session_prefill(session, ids, 6, NULL, NULL, &error) == LINNET_OK) {
    memcpy(worker->logits, linnet_session_logits(session, &count), sizeof(worker->logits));
  }
  linnet_session_free(session);
  return worker;
}

static void TestSessionsRunBesideEachOther(const linnet_model* model) {
  struct Worker workers[3];
  pthread_t threads[3];
  float expected[VOCAB];
  void* done;
  int i;
  FewLogits(model, expected);
  for (i = 0; i < 3; ++i) {
    workers[i].model = model;
    CHECK(pthread_create(&threads[i], NULL, Work, &workers[i]) == 0);
  }
  for (i = 0; i < 3; ++i) {
    pthread_join(threads[i], &done);
    CHECK(done != NULL && memcmp(workers[i].logits, expected, sizeof(expected)) == 0);
  }
}

int main(int argc, char** argv) {
  linnet_model* model;
  if (argc != 3) return 2;
  g_path = argv[1];
  g_folder = argv[2];
  TestVersionsAndNames();
  TestNullsAreRefusedEverywhere();
  TestDamagedFilesAreRefused();
  TestStructsOfOtherSizes();
  TestPlanBeforeLoading();
  TestLoading();
  TestCallbacksOfLoading();
  TestDescriptors();
  model = OpenLoaded();
  TestPrefillIsStopped(model);
  TestCancelFromAnotherThread(model);
  TestContextIsFull(model);
  TestPrefixIsReused(model);
  TestSampler(model);
  TestTexts(model);
  TestChatTemplate(model);
  TestSessionsRunBesideEachOther(model);
  linnet_model_free(model);
  TestHandlesMayBeFreedInAnyOrder();
  printf("%d checks, %d failed\n", g_checks, g_failures);
  return g_failures == 0 ? 0 : 1;
}
