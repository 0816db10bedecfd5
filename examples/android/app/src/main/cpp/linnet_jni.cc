// org.linnet.chat.Linnet's native methods over the C API. Handles travel as jlong; every failure becomes a
// LinnetException. Nothing is kept between two calls.
#include <jni.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "linnet.h"

namespace {

constexpr char kExceptionClass[] = "org/linnet/chat/LinnetException";

template <typename T>
T* Handle(jlong value) {
  return reinterpret_cast<T*>(static_cast<intptr_t>(value));
}

jlong FromHandle(const void* handle) { return static_cast<jlong>(reinterpret_cast<intptr_t>(handle)); }

jbyteArray MakeBytes(JNIEnv* env, const char* text, size_t size) {
  jbyteArray array = env->NewByteArray(static_cast<jsize>(size));
  if (array == nullptr) return nullptr;  // an OutOfMemoryError waits
  env->SetByteArrayRegion(array, 0, static_cast<jsize>(size), reinterpret_cast<const jbyte*>(text));
  return array;
}

// Makes the caller's method throw. Returns false where nothing is wrong. An exception that already waits (from a
// progress method) stays the one that is thrown.
bool Throw(JNIEnv* env, linnet_status status, const linnet_error& error) {
  if (env->ExceptionCheck()) return true;
  if (status == LINNET_OK) return false;
  jclass type = env->FindClass(kExceptionClass);
  if (type == nullptr) return true;
  jmethodID constructor = env->GetMethodID(type, "<init>", "(I[B)V");
  jbyteArray message = constructor == nullptr ? nullptr : MakeBytes(env, error.message, std::strlen(error.message));
  if (message == nullptr) return true;
  jobject exception = env->NewObject(type, constructor, static_cast<jint>(status), message);
  if (exception != nullptr) env->Throw(static_cast<jthrowable>(exception));
  return true;
}

// The bytes of an array, with a NUL behind them. A null array gives an empty text.
std::vector<char> ReadBytes(JNIEnv* env, jbyteArray array) {
  const jsize size = array == nullptr ? 0 : env->GetArrayLength(array);
  std::vector<char> bytes(static_cast<size_t>(size) + 1, '\0');
  if (size != 0) env->GetByteArrayRegion(array, 0, size, reinterpret_cast<jbyte*>(bytes.data()));
  return bytes;
}

std::vector<int32_t> ReadInts(JNIEnv* env, jintArray array) {
  const jsize size = array == nullptr ? 0 : env->GetArrayLength(array);
  std::vector<int32_t> ids(static_cast<size_t>(size));
  if (size != 0) env->GetIntArrayRegion(array, 0, size, ids.data());
  return ids;
}

// A Progress object as the C API calls it, on the thread that called the native method.
struct Progress {
  JNIEnv* env;
  jobject object;
  jmethodID method;

  Progress(JNIEnv* env_in, jobject object_in) : env(env_in), object(object_in), method(nullptr) {
    if (object == nullptr) return;
    method = env->GetMethodID(env->GetObjectClass(object), "onProgress", "(JJ)Z");
  }
  linnet_progress_function function() const { return method == nullptr ? nullptr : &Progress::Call; }

  static int Call(void* context, uint64_t done, uint64_t total) {
    const Progress& progress = *static_cast<Progress*>(context);
    if (progress.env->ExceptionCheck()) return 0;
    const jboolean go_on = progress.env->CallBooleanMethod(progress.object, progress.method, static_cast<jlong>(done),
                                                           static_cast<jlong>(total));
    return !progress.env->ExceptionCheck() && go_on ? 1 : 0;
  }
};

linnet_session_options SessionOptions(jint context_tokens, jint threads) {
  linnet_session_options options = {};
  options.struct_size = sizeof(options);
  options.context_tokens = static_cast<uint32_t>(context_tokens);
  options.n_threads = static_cast<uint32_t>(threads);
  return options;
}

jbyteArray Version(JNIEnv* env, jclass) { return MakeBytes(env, linnet_version(), std::strlen(linnet_version())); }

jlong OpenModel(JNIEnv* env, jclass, jint descriptor, jlong offset, jlong length) {
  linnet_model* model = nullptr;
  linnet_error error;
  const linnet_status status = linnet_model_open_descriptor(descriptor, static_cast<uint64_t>(offset),
                                                            static_cast<uint64_t>(length), nullptr, &model, &error);
  Throw(env, status, error);
  return FromHandle(model);
}

void FreeModel(JNIEnv*, jclass, jlong model) { linnet_model_free(Handle<linnet_model>(model)); }

bool GetInfo(JNIEnv* env, jlong model, linnet_model_info* info) {
  linnet_error error;
  *info = {};
  info->struct_size = sizeof(*info);
  return !Throw(env, linnet_model_get_info(Handle<linnet_model>(model), info, &error), error);
}

jbyteArray ModelName(JNIEnv* env, jclass, jlong model) {
  linnet_model_info info;
  return GetInfo(env, model, &info) ? MakeBytes(env, info.name, std::strlen(info.name)) : nullptr;
}

jboolean HasChatTemplate(JNIEnv* env, jclass, jlong model) {
  linnet_model_info info;
  return GetInfo(env, model, &info) && info.has_chat_template != 0;
}

jboolean IsEnd(JNIEnv*, jclass, jlong model, jint id) {
  return linnet_model_is_end(Handle<linnet_model>(model), id) != 0;
}

// In the order of Linnet.PLAN_...
jlongArray Plan(JNIEnv* env, jclass, jlong model, jint context_tokens, jint threads) {
  const linnet_session_options options = SessionOptions(context_tokens, threads);
  linnet_plan plan = {};
  plan.struct_size = sizeof(plan);
  linnet_error error;
  if (Throw(env, linnet_model_plan(Handle<linnet_model>(model), &options, &plan, &error), error)) return nullptr;
  const uint64_t working = plan.activations + plan.scratch + plan.logits + plan.operators + plan.tables +
                           plan.thread_stacks + plan.sampler + plan.tokenizer;
  const uint64_t values[] = {plan.context_tokens,
                             plan.n_threads,
                             plan.total - plan.packed_weights - plan.copied_model - plan.kv_cache - working,
                             plan.packed_weights,
                             plan.copied_model,
                             plan.kv_cache,
                             working,
                             plan.total};
  constexpr jsize kCount = sizeof(values) / sizeof(values[0]);
  jlong numbers[kCount];
  for (jsize i = 0; i < kCount; ++i) numbers[i] = static_cast<jlong>(values[i]);
  jlongArray array = env->NewLongArray(kCount);
  if (array != nullptr) env->SetLongArrayRegion(array, 0, kCount, numbers);
  return array;
}

void Load(JNIEnv* env, jclass, jlong model, jbyteArray cache_folder, jobject listener) {
  const std::vector<char> folder = ReadBytes(env, cache_folder);
  Progress progress(env, listener);
  linnet_load_options options = {};
  options.struct_size = sizeof(options);
  options.cache_folder = folder.data();
  options.progress = progress.function();
  options.progress_context = &progress;
  linnet_error error;
  Throw(env, linnet_model_load(Handle<linnet_model>(model), &options, &error), error);
}

jintArray Tokenize(JNIEnv* env, jclass, jlong model, jbyteArray text, jint flags) {
  const std::vector<char> bytes = ReadBytes(env, text);
  std::vector<int32_t> ids(bytes.size());
  size_t count = 0;
  linnet_error error;
  linnet_status status = LINNET_BUFFER_TOO_SMALL;
  while (status == LINNET_BUFFER_TOO_SMALL) {  // at most twice
    status = linnet_tokenize(Handle<linnet_model>(model), bytes.data(), bytes.size() - 1, static_cast<uint32_t>(flags),
                             ids.data(), ids.size(), &count, &error);
    if (status == LINNET_BUFFER_TOO_SMALL) ids.resize(count);
  }
  if (Throw(env, status, error)) return nullptr;
  jintArray array = env->NewIntArray(static_cast<jsize>(count));
  if (array != nullptr) env->SetIntArrayRegion(array, 0, static_cast<jsize>(count), ids.data());
  return array;
}

jbyteArray RenderChat(JNIEnv* env, jclass, jlong model, jobjectArray texts, jlong now_unix_seconds) {
  const jsize n = env->GetArrayLength(texts) / 2;
  std::vector<std::vector<char>> bytes;
  for (jsize i = 0; i < 2 * n; ++i) {
    const auto text = static_cast<jbyteArray>(env->GetObjectArrayElement(texts, i));
    bytes.push_back(ReadBytes(env, text));
    env->DeleteLocalRef(text);
  }
  std::vector<linnet_chat_message> messages(static_cast<size_t>(n));
  for (size_t i = 0; i < messages.size(); ++i) messages[i] = {bytes[2 * i].data(), bytes[2 * i + 1].data()};
  linnet_chat_options options = {};
  options.struct_size = sizeof(options);
  options.now_unix_seconds = now_unix_seconds;
  std::vector<char> out(4096);
  size_t size = 0;
  linnet_error error;
  linnet_status status = LINNET_BUFFER_TOO_SMALL;
  while (status == LINNET_BUFFER_TOO_SMALL) {  // at most twice
    status = linnet_chat_render(Handle<linnet_model>(model), messages.data(), messages.size(), &options, out.data(),
                                out.size(), &size, &error);
    if (status == LINNET_BUFFER_TOO_SMALL) out.resize(size + 1);
  }
  return Throw(env, status, error) ? nullptr : MakeBytes(env, out.data(), size);
}

jlong CreateSession(JNIEnv* env, jclass, jlong model, jint context_tokens, jint threads) {
  const linnet_session_options options = SessionOptions(context_tokens, threads);
  linnet_session* session = nullptr;
  linnet_error error;
  Throw(env, linnet_session_create(Handle<linnet_model>(model), &options, &session, &error), error);
  return FromHandle(session);
}

void FreeSession(JNIEnv*, jclass, jlong session) { linnet_session_free(Handle<linnet_session>(session)); }

jint SetPrompt(JNIEnv* env, jclass, jlong session, jintArray array, jobject listener) {
  const std::vector<int32_t> ids = ReadInts(env, array);
  Progress progress(env, listener);
  size_t reused = 0;
  linnet_error error;
  const linnet_status status = linnet_session_set_prompt(Handle<linnet_session>(session), ids.data(), ids.size(),
                                                         progress.function(), &progress, &reused, &error);
  Throw(env, status, error);
  return static_cast<jint>(reused);
}

void Decode(JNIEnv* env, jclass, jlong session, jint id) {
  linnet_error error;
  Throw(env, linnet_session_decode(Handle<linnet_session>(session), id, &error), error);
}

jint Remaining(JNIEnv*, jclass, jlong session) {
  return static_cast<jint>(linnet_session_remaining(Handle<linnet_session>(session)));
}

void Cancel(JNIEnv*, jclass, jlong session) { linnet_session_cancel(Handle<linnet_session>(session)); }
void ResetCancel(JNIEnv*, jclass, jlong session) { linnet_session_reset_cancel(Handle<linnet_session>(session)); }

jlong CreateSampler(JNIEnv* env, jclass, jlong model, jlong seed) {
  linnet_sampler_options options = {};
  options.struct_size = sizeof(options);
  linnet_error error;
  if (Throw(env, linnet_model_sampler_defaults(Handle<linnet_model>(model), &options, &error), error)) return 0;
  options.seed = static_cast<uint64_t>(seed);
  linnet_sampler* sampler = nullptr;
  Throw(env, linnet_sampler_create(Handle<linnet_model>(model), &options, &sampler, &error), error);
  return FromHandle(sampler);
}

void FreeSampler(JNIEnv*, jclass, jlong sampler) { linnet_sampler_free(Handle<linnet_sampler>(sampler)); }

jint Sample(JNIEnv* env, jclass, jlong sampler, jlong session) {
  int32_t id = -1;
  linnet_error error;
  Throw(env, linnet_sampler_sample(Handle<linnet_sampler>(sampler), Handle<linnet_session>(session), &id, &error),
        error);
  return id;
}

void Accept(JNIEnv* env, jclass, jlong sampler, jintArray array) {
  const std::vector<int32_t> ids = ReadInts(env, array);
  linnet_error error;
  Throw(env, linnet_sampler_accept(Handle<linnet_sampler>(sampler), ids.data(), ids.size(), &error), error);
}

jlong CreateDecoder(JNIEnv* env, jclass, jlong model, jint flags) {
  linnet_decoder* decoder = nullptr;
  linnet_error error;
  const auto bits = static_cast<uint32_t>(flags);
  Throw(env, linnet_decoder_create(Handle<linnet_model>(model), bits, &decoder, &error), error);
  return FromHandle(decoder);
}

void FreeDecoder(JNIEnv*, jclass, jlong decoder) { linnet_decoder_free(Handle<linnet_decoder>(decoder)); }

jbyteArray Push(JNIEnv* env, jclass, jlong decoder, jint id) {
  const char* text = nullptr;
  size_t size = 0;
  linnet_error error;
  const linnet_status status = linnet_decoder_push(Handle<linnet_decoder>(decoder), id, &text, &size, &error);
  return Throw(env, status, error) ? nullptr : MakeBytes(env, text, size);
}

jbyteArray Flush(JNIEnv* env, jclass, jlong decoder) {
  const char* text = nullptr;
  size_t size = 0;
  linnet_error error;
  const linnet_status status = linnet_decoder_flush(Handle<linnet_decoder>(decoder), &text, &size, &error);
  return Throw(env, status, error) ? nullptr : MakeBytes(env, text, size);
}

template <typename Function>
JNINativeMethod Method(const char* name, const char* signature, Function* function) {
  return {const_cast<char*>(name), const_cast<char*>(signature), reinterpret_cast<void*>(function)};
}

}  // namespace

// The methods are registered, so that this is the library's only symbol and a wrong signature shows when it is loaded.
extern "C" JNIEXPORT jint JNI_OnLoad(JavaVM* machine, void*) {
  JNIEnv* env = nullptr;
  if (machine->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
  jclass linnet = env->FindClass("org/linnet/chat/Linnet");
  if (linnet == nullptr) return JNI_ERR;
  const JNINativeMethod methods[] = {
      Method("version", "()[B", Version),
      Method("openModel", "(IJJ)J", OpenModel),
      Method("freeModel", "(J)V", FreeModel),
      Method("modelName", "(J)[B", ModelName),
      Method("hasChatTemplate", "(J)Z", HasChatTemplate),
      Method("isEnd", "(JI)Z", IsEnd),
      Method("plan", "(JII)[J", Plan),
      Method("load", "(J[BLorg/linnet/chat/Linnet$Progress;)V", Load),
      Method("tokenize", "(J[BI)[I", Tokenize),
      Method("renderChat", "(J[[BJ)[B", RenderChat),
      Method("createSession", "(JII)J", CreateSession),
      Method("freeSession", "(J)V", FreeSession),
      Method("setPrompt", "(J[ILorg/linnet/chat/Linnet$Progress;)I", SetPrompt),
      Method("decode", "(JI)V", Decode),
      Method("remaining", "(J)I", Remaining),
      Method("cancel", "(J)V", Cancel),
      Method("resetCancel", "(J)V", ResetCancel),
      Method("createSampler", "(JJ)J", CreateSampler),
      Method("freeSampler", "(J)V", FreeSampler),
      Method("sample", "(JJ)I", Sample),
      Method("accept", "(J[I)V", Accept),
      Method("createDecoder", "(JI)J", CreateDecoder),
      Method("freeDecoder", "(J)V", FreeDecoder),
      Method("push", "(JI)[B", Push),
      Method("flush", "(J)[B", Flush),
  };
  const jint count = sizeof(methods) / sizeof(methods[0]);
  return env->RegisterNatives(linnet, methods, count) == JNI_OK ? JNI_VERSION_1_6 : JNI_ERR;
}
