/* Public header. Linnet for C and every language that binds to C (C99).

   A conversation in order: linnet_model_open, linnet_model_plan (what it will take), linnet_model_load (weights in the
   layout of this CPU), linnet_session_create, linnet_sampler_create; then for each turn linnet_chat_render,
   linnet_tokenize, linnet_session_set_prompt, and until linnet_model_is_end: linnet_sampler_sample,
   linnet_decoder_push, linnet_session_decode. examples/python/chat.py is that, whole.

   Errors. Every function that can fail returns a linnet_status and fills the caller's linnet_error (may be NULL) with
   the same status and one line: what, where, expected, found. There is no other place where errors are kept, so threads
   never see each other's. Nothing here prints, ends the process or throws because of input, files or lack of memory
   (what lack of memory can still end: capi/README.md). After a failure the handle is as before, unless a function says
   otherwise.

   Handles are made by _open and _create functions, which set *out only when they succeed (and to NULL when they fail),
   and freed by _free, which takes NULL. They may be freed in any order: a session, sampler or decoder keeps what it
   needs of its model alive.

   Threads. A linnet_model may be used from any number of threads at once. A session, sampler or decoder is used by one
   thread at a time, not necessarily always the same; a session that is in use by another call, or that is called from
   its own callback, answers LINNET_INVALID_ARGUMENT and is not touched. Only linnet_session_cancel,
   linnet_session_reset_cancel, linnet_session_position and linnet_session_remaining may be called at any time from any
   thread. No call may run while its handle is freed.
   Callbacks run on the thread of the call that they were given to, and must return normally (no longjmp, no
   exception).

   Memory. A session takes all its memory when it is created; prefill, decode, rewind, sampling and logits never call
   the heap.

   Texts are UTF-8. A text with a length needs no NUL at its end; one without a length ends with NUL. Texts that are
   handed out end with NUL (not counted in their length), and stay the library's.

   Options and reports begin with struct_size, which the caller sets to sizeof(the struct) after zeroing it all. A
   library older than the caller's header refuses fields that it does not know unless they are zero, and an older
   caller's shorter struct is read and written up to its size. Zero in a field always means the default. */
#ifndef LINNET_CAPI_LINNET_H_
#define LINNET_CAPI_LINNET_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rises by one when functions or fields are added. Within one soname (liblinnet.so.0) nothing is taken away. */
#define LINNET_API_VERSION 1

#if defined(__GNUC__)
#define LINNET_EXPORT __attribute__((visibility("default")))
#else
#define LINNET_EXPORT
#endif

/* LINNET_API_VERSION of the library that runs. */
LINNET_EXPORT uint32_t linnet_api_version(void);
/* "0.1.0" */
LINNET_EXPORT const char* linnet_version(void);

/* ---- Errors ---- */

typedef int32_t linnet_status;
enum {
  LINNET_OK = 0,
  LINNET_INVALID_ARGUMENT = 1, /* the caller's argument */
  LINNET_INVALID_MODEL = 2,    /* the content of a model, tokenizer or template */
  LINNET_UNSUPPORTED = 3,      /* well formed, but this library cannot run it */
  LINNET_OUT_OF_MEMORY = 4,
  LINNET_CONTEXT_FULL = 5,    /* no room left in the KV cache; value: how many tokens still fit */
  LINNET_IO_ERROR = 6,        /* the operating system refused */
  LINNET_CANCELLED = 7,       /* a callback or linnet_session_cancel asked to stop */
  LINNET_INTERNAL = 8,        /* an error of Linnet's own */
  LINNET_BUFFER_TOO_SMALL = 9 /* the caller's buffer; the size that it needs was written */
};

/* "invalid model" and so on; "unknown status" for any other number. */
LINNET_EXPORT const char* linnet_status_name(linnet_status status);

/* This struct never changes. */
typedef struct linnet_error {
  linnet_status status;
  int32_t reserved;
  int64_t value;      /* a count or an index where the function says so, else -1 */
  char message[1280]; /* one line without a newline; "" after success */
} linnet_error;

/* ---- Callbacks ---- */

typedef int32_t linnet_log_level;
enum { LINNET_LOG_INFO = 0, LINNET_LOG_WARNING = 1 };
/* One line without a newline, valid during the call. May be called from any thread that uses the model. */
typedef void (*linnet_log_function)(void* context, linnet_log_level level, const char* line);

/* Called with what is done and what there is in all, in the unit of the function that calls it. Returns nonzero to go
   on, 0 to stop. */
typedef int (*linnet_progress_function)(void* context, uint64_t done, uint64_t total);

/* ---- Model: a file, checked, with its tokenizer and chat template. Read-only after linnet_model_load. ---- */

typedef struct linnet_model linnet_model;

typedef struct linnet_model_options {
  size_t struct_size;
  linnet_log_function log; /* NULL: silent */
  void* log_context;       /* outlives the model and all that was made from it */
} linnet_model_options;

/* Maps and checks a .linnet file; reads no weights. `options` may be NULL.
   Errors: LINNET_IO_ERROR, LINNET_INVALID_MODEL, LINNET_UNSUPPORTED (a newer format). */
LINNET_EXPORT linnet_status linnet_model_open(const char* path, const linnet_model_options* options, linnet_model** out,
                                              linnet_error* error);

/* The same for `length` bytes at `offset` of an open file descriptor, which stays the caller's and may be closed
   afterwards (Android: a ParcelFileDescriptor, or an asset that is stored uncompressed in an APK). length 0: up to the
   file's end. The offset need not be a multiple of the page size; where it is no multiple of 64 the model cannot be
   used where it is mapped and is copied into memory instead, with a warning in the log, and the plan counts it
   (copied_model). Errors: also LINNET_INVALID_ARGUMENT (a range that the file does not have), LINNET_OUT_OF_MEMORY. */
LINNET_EXPORT linnet_status linnet_model_open_descriptor(int descriptor, uint64_t offset, uint64_t length,
                                                         const linnet_model_options* options, linnet_model** out,
                                                         linnet_error* error);
LINNET_EXPORT void linnet_model_free(linnet_model* model);

typedef struct linnet_model_info {
  size_t struct_size;
  const char* name;    /* as the source gave it, may be "" */
  const char* license; /* text or name, may be "" */
  uint64_t file_bytes;
  uint32_t vocab_size;
  uint32_t context_length; /* that the model was trained for; 0: unknown */
  uint32_t n_layers;
  uint32_t model_dim;
  int32_t has_tokenizer; /* 0: only ids can be used */
  int32_t has_chat_template;
  int32_t bos_id; /* -1: none */
  int32_t reserved;
} linnet_model_info;
LINNET_EXPORT linnet_status linnet_model_get_info(const linnet_model* model, linnet_model_info* info,
                                                  linnet_error* error);

/* Nonzero for the ids that end an answer. */
LINNET_EXPORT int linnet_model_is_end(const linnet_model* model, int32_t id);

/* ---- Plan: exact bytes before anything is loaded. ---- */

enum { LINNET_KV_AUTO = 0, LINNET_KV_F32 = 1, LINNET_KV_F16 = 2, LINNET_KV_INT8 = 3 };

typedef struct linnet_session_options {
  size_t struct_size;
  uint32_t context_tokens; /* positions of the KV cache; 0: the model's, at most 4096 */
  uint32_t chunk_tokens;   /* prompt tokens in one pass, and so between two progress calls; 0: 128 */
  uint32_t n_threads;      /* 0: the physical cores of the fast cluster */
  int32_t kv_type;         /* LINNET_KV_...; auto: f16 where weights are quantized, else f32 */
  uint64_t memory_budget;  /* bytes that linnet_plan's total may reach; 0: no limit. Context and chunk that are 0 are
                              then chosen: the largest that fit */
} linnet_session_options;

typedef struct linnet_plan {
  size_t struct_size;
  /* The options with the defaults filled in. */
  uint32_t context_tokens;
  uint32_t chunk_tokens;
  uint32_t n_threads;
  int32_t kv_type;
  /* Bytes of the model, shared by its sessions. */
  uint64_t mapped_weights; /* read where the file is mapped */
  uint64_t packed_weights; /* a mapped file where linnet_model_load has a cache folder, else anonymous memory */
  uint64_t tokenizer;      /* heap */
  uint64_t metadata;       /* description and vocabulary, mapped */
  uint64_t copied_model;   /* the whole file, where it had to be copied (linnet_model_open_descriptor) */
  /* Bytes of each session, anonymous. */
  uint64_t kv_cache;
  uint64_t activations;
  uint64_t scratch;
  uint64_t logits;
  uint64_t operators;     /* heap, at most */
  uint64_t tables;        /* heap */
  uint64_t thread_stacks; /* what its threads touch, at most */
  uint64_t sampler;       /* heap of one sampler, at most */
  /* Sum of the classes above. Where the model was copied, mapped_weights and metadata lie in the copy and are not
     counted twice. */
  uint64_t total;
} linnet_plan;

/* What linnet_session_create with the same options will take. `options` may be NULL.
   Errors: LINNET_INVALID_ARGUMENT (options out of range), LINNET_UNSUPPORTED, LINNET_OUT_OF_MEMORY (nothing fits the
   memory budget; value: the smallest one that would do). */
LINNET_EXPORT linnet_status linnet_model_plan(const linnet_model* model, const linnet_session_options* options,
                                              linnet_plan* plan, linnet_error* error);

/* ---- Weights ---- */

typedef struct linnet_load_options {
  size_t struct_size;
  const char* cache_folder;          /* where the packed file is kept, made if absent, never ""; NULL: weights are
                                        packed into anonymous memory each time */
  linnet_progress_function progress; /* bytes packed; not called where the packed file exists already */
  void* progress_context;
} linnet_load_options;

/* Opens the weights packed for this CPU from the cache folder, or makes them there. Where the folder cannot be written
   they are packed into memory, with a warning in the log. Must come before linnet_session_create; a second call does
   nothing, after the first has ended. Two threads or processes may do this at once for the same folder. `options` may
   be NULL. Errors: LINNET_CANCELLED (nothing is left behind), LINNET_OUT_OF_MEMORY, LINNET_INVALID_MODEL,
   LINNET_INVALID_ARGUMENT (options; a call from a callback of this very call). */
LINNET_EXPORT linnet_status linnet_model_load(linnet_model* model, const linnet_load_options* options,
                                              linnet_error* error);

/* ---- Tokenizer. Errors of all: LINNET_INVALID_ARGUMENT where the model has none. ---- */

enum {
  LINNET_ENCODE_ADD_SPECIAL = 1,   /* the tokenizer's own prefix and suffix tokens (bos, eos) around the text */
  LINNET_ENCODE_PARSE_SPECIAL = 2, /* special tokens written in the text become those tokens: for a rendered chat
                                      template, never for a user's own words */
  LINNET_ENCODE_TEXT_START = 4     /* the ids that begin a text that the model shall continue (mostly bos) in front */
};
/* Writes the ids of a text and their number. Where `capacity` is too small, LINNET_BUFFER_TOO_SMALL with the number
   that it needs in *count and nothing in `ids` (which may then be NULL). */
LINNET_EXPORT linnet_status linnet_tokenize(const linnet_model* model, const char* text, size_t text_bytes,
                                            uint32_t flags, int32_t* ids, size_t capacity, size_t* count,
                                            linnet_error* error);

enum { LINNET_DECODE_KEEP_SPECIAL = 1, LINNET_DECODE_CONTINUES = 2 /* the ids continue a text: no space is dropped */ };
/* The text of ids, always valid UTF-8 (what is not becomes U+FFFD). Writes *text_bytes bytes and a NUL; where
   `capacity` (NUL counted) is too small, LINNET_BUFFER_TOO_SMALL, with *text_bytes what it needs without the NUL. */
LINNET_EXPORT linnet_status linnet_detokenize(const linnet_model* model, const int32_t* ids, size_t count,
                                              uint32_t flags, char* text, size_t capacity, size_t* text_bytes,
                                              linnet_error* error);

/* The text of a stream of ids, in whole code points: at most three bytes are held back. */
typedef struct linnet_decoder linnet_decoder;
LINNET_EXPORT linnet_status linnet_decoder_create(const linnet_model* model, uint32_t flags, linnet_decoder** out,
                                                  linnet_error* error);
LINNET_EXPORT void linnet_decoder_free(linnet_decoder* decoder);
/* *text (may be "") is what `id` completes, valid until the next call with this decoder. text_bytes may be NULL. */
LINNET_EXPORT linnet_status linnet_decoder_push(linnet_decoder* decoder, int32_t id, const char** text,
                                                size_t* text_bytes, linnet_error* error);
/* Ends the text: bytes that are held back become one U+FFFD. The decoder then starts anew. */
LINNET_EXPORT linnet_status linnet_decoder_flush(linnet_decoder* decoder, const char** text, size_t* text_bytes,
                                                 linnet_error* error);

/* ---- Chat template ---- */

typedef struct linnet_chat_message {
  const char* role; /* "system", "user", "assistant" */
  const char* content;
} linnet_chat_message;

typedef struct linnet_chat_options {
  size_t struct_size;
  int32_t no_generation_prompt; /* nonzero: do not end with what begins the assistant's answer */
  int32_t reserved;
  const char* tools_json;         /* a JSON array of tools; NULL: none */
  const char* extra_context_json; /* a JSON object whose members become variables of the template; NULL: none */
  int64_t now_unix_seconds;       /* what the template's clock shows, in UTC; keep it over a conversation, so that its
                                     prompt stays the same */
} linnet_chat_options;

/* The conversation as the model's own template writes it; for linnet_tokenize with LINNET_ENCODE_PARSE_SPECIAL.
   `options` may be NULL; text, capacity and text_bytes as in linnet_detokenize.
   Errors: LINNET_INVALID_ARGUMENT (no template, or a message that the template refuses, with its words),
   LINNET_INVALID_MODEL (the template fails or exceeds its limits). */
LINNET_EXPORT linnet_status linnet_chat_render(const linnet_model* model, const linnet_chat_message* messages,
                                               size_t n_messages, const linnet_chat_options* options, char* text,
                                               size_t capacity, size_t* text_bytes, linnet_error* error);
/* The same for messages as a JSON array of objects (tool calls, parts of content). */
LINNET_EXPORT linnet_status linnet_chat_render_json(const linnet_model* model, const char* messages_json,
                                                    const linnet_chat_options* options, char* text, size_t capacity,
                                                    size_t* text_bytes, linnet_error* error);

/* ---- Session: one sequence over a model, with its KV cache and its threads. ---- */

typedef struct linnet_session linnet_session;

/* Takes all memory of the session and starts its threads. `options` may be NULL.
   Errors: LINNET_INVALID_ARGUMENT (options; linnet_model_load has not been called or has not ended),
   LINNET_OUT_OF_MEMORY (also where the system has no room for the threads). */
LINNET_EXPORT linnet_status linnet_session_create(const linnet_model* model, const linnet_session_options* options,
                                                  linnet_session** out, linnet_error* error);
LINNET_EXPORT void linnet_session_free(linnet_session* session);

/* Appends ids. Afterwards the logits are those of the last one. `progress` (may be NULL) is called after every chunk
   with tokens done and in all. Errors: LINNET_INVALID_ARGUMENT (no ids, or an id outside the vocabulary; value: its
   index), LINNET_CONTEXT_FULL (value: how many fit): nothing has changed. LINNET_CANCELLED: whole chunks that were done
   stay, linnet_session_position tells. */
LINNET_EXPORT linnet_status linnet_session_prefill(linnet_session* session, const int32_t* ids, size_t count,
                                                   linnet_progress_function progress, void* progress_context,
                                                   linnet_error* error);
/* Makes the whole sequence equal to `ids`, computing only what lies behind the part that it already begins with: the
   way to run each turn of a conversation. *reused (may be NULL) is the number of tokens that were kept. progress counts
   the new ones. Errors: as linnet_session_prefill; LINNET_CANCELLED leaves a sequence that `ids` begins with. */
LINNET_EXPORT linnet_status linnet_session_set_prompt(linnet_session* session, const int32_t* ids, size_t count,
                                                      linnet_progress_function progress, void* progress_context,
                                                      size_t* reused, linnet_error* error);
/* Appends one id. Errors: as linnet_session_prefill; LINNET_CANCELLED before anything was done. */
LINNET_EXPORT linnet_status linnet_session_decode(linnet_session* session, int32_t id, linnet_error* error);

/* Logits of the last position, [*count]; NULL with 0 where there are none: before the first token and after a rewind.
   Valid until the next call that changes the session. */
LINNET_EXPORT const float* linnet_session_logits(const linnet_session* session, size_t* count);

LINNET_EXPORT uint32_t linnet_session_position(const linnet_session* session);  /* tokens in the sequence */
LINNET_EXPORT uint32_t linnet_session_remaining(const linnet_session* session); /* tokens that still fit */

/* Forgets everything from `position` on. Errors: LINNET_INVALID_ARGUMENT where it is ahead; LINNET_UNSUPPORTED where a
   layer with a window no longer holds what came before it (0 always works). */
LINNET_EXPORT linnet_status linnet_session_rewind(linnet_session* session, uint32_t position, linnet_error* error);

/* From any thread: the call that runs stops after its chunk, and every prefill and decode from now on answers
   LINNET_CANCELLED, until linnet_session_reset_cancel. So a stop that comes between two calls is not lost; begin each
   turn with the reset. */
LINNET_EXPORT void linnet_session_cancel(linnet_session* session);
LINNET_EXPORT void linnet_session_reset_cancel(linnet_session* session);

/* ---- Sampler ---- */

typedef struct linnet_sampler linnet_sampler;

/* Applied in this order: penalty, temperature, top_k, top_p, min_p. All zero: the likeliest token. */
typedef struct linnet_sampler_options {
  size_t struct_size;
  float temperature;        /* 0: the likeliest token */
  int32_t top_k;            /* the k likeliest; 0: all */
  float top_p;              /* in (0, 1]: the fewest tokens whose probability reaches it; 0: all */
  float min_p;              /* in [0, 1]: tokens at least this likely, relative to the likeliest; 0: all */
  float repetition_penalty; /* > 0; 0: none, as 1 */
  uint32_t penalty_window;  /* the penalty sees the last this many tokens; 0: all since the reset */
  uint64_t seed;
} linnet_sampler_options;

/* What the model's authors recommend; what they do not give is left zero. Sets struct_size's fields only. */
LINNET_EXPORT linnet_status linnet_model_sampler_defaults(const linnet_model* model, linnet_sampler_options* options,
                                                          linnet_error* error);

/* `options` may be NULL. Errors: LINNET_INVALID_ARGUMENT naming the option that is out of range. */
LINNET_EXPORT linnet_status linnet_sampler_create(const linnet_model* model, const linnet_sampler_options* options,
                                                  linnet_sampler** out, linnet_error* error);
LINNET_EXPORT void linnet_sampler_free(linnet_sampler* sampler);
/* The next token, from the session's logits. The same options, seed and logits give the same tokens. Does not change
   the session. Errors: LINNET_INVALID_ARGUMENT (no logits, or a session of another vocabulary),
   LINNET_INVALID_MODEL (a logit that is NaN or infinite). */
LINNET_EXPORT linnet_status linnet_sampler_sample(linnet_sampler* sampler, const linnet_session* session, int32_t* id,
                                                  linnet_error* error);
/* Records tokens of the prompt and of the answer for the repetition penalty; sampling does not record its own. */
LINNET_EXPORT linnet_status linnet_sampler_accept(linnet_sampler* sampler, const int32_t* ids, size_t count,
                                                  linnet_error* error);
/* Forgets the tokens and starts the random sequence again from the seed. */
LINNET_EXPORT void linnet_sampler_reset(linnet_sampler* sampler);

#ifdef __cplusplus
}
#endif

#endif /* LINNET_CAPI_LINNET_H_ */
