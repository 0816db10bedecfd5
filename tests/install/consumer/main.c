/* Opens a model, runs a token, prints the bytes that the plan has for the KV cache. */
#include <linnet.h>
#include <stdio.h>

int main(int argc, char** argv) {
  const int32_t id = 1;
  linnet_model* model = NULL;
  linnet_session* session = NULL;
  linnet_error error;
  linnet_plan plan = {0};
  plan.struct_size = sizeof(plan);
  if (argc != 2) return 2;
  if (linnet_model_open(argv[1], NULL, &model, &error) != LINNET_OK ||
      linnet_model_plan(model, NULL, &plan, &error) != LINNET_OK ||
      linnet_model_load(model, NULL, &error) != LINNET_OK ||
      linnet_session_create(model, NULL, &session, &error) != LINNET_OK ||
      linnet_session_prefill(session, &id, 1, NULL, NULL, &error) != LINNET_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("%s %llu\n", linnet_version(), (unsigned long long)plan.kv_cache);
  linnet_session_free(session);
  linnet_model_free(model);
  return 0;
}
