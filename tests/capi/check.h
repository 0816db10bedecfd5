/* The little that C tests of the API need: checks that name their place, and all failures counted. */
#ifndef LINNET_TESTS_CAPI_CHECK_H_
#define LINNET_TESTS_CAPI_CHECK_H_

#include <stdio.h>
#include <string.h>

#include "capi/linnet.h"

static int g_checks = 0;
static int g_failures = 0;
static linnet_error g_error;

#define CHECK(condition)                                                   \
  do {                                                                     \
    ++g_checks;                                                            \
    if (!(condition)) {                                                    \
      ++g_failures;                                                        \
      printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
    }                                                                      \
  } while (0)

/* A call whose last argument is &g_error succeeds, or fails with this status, one line and the same status in it. */
#define CHECK_OK(call)                                                                      \
  do {                                                                                      \
    ++g_checks;                                                                             \
    if ((call) != LINNET_OK || g_error.status != LINNET_OK || g_error.message[0] != '\0') { \
      ++g_failures;                                                                         \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, g_error.message);                \
    }                                                                                       \
  } while (0)
#define CHECK_FAILS(expected, call)                                                                             \
  do {                                                                                                          \
    const linnet_status check_status = (call);                                                                  \
    ++g_checks;                                                                                                 \
    if (check_status != (expected) || g_error.status != check_status || g_error.message[0] == '\0' ||           \
        strchr(g_error.message, '\n') != NULL) {                                                                \
      ++g_failures;                                                                                             \
      printf("%s:%d: %s: expected %s, found %s: %s\n", __FILE__, __LINE__, #call, linnet_status_name(expected), \
             linnet_status_name(check_status), g_error.message);                                                \
    }                                                                                                           \
  } while (0)
#define CHECK_SAYS(text) CHECK(strstr(g_error.message, (text)) != NULL)

#endif /* LINNET_TESTS_CAPI_CHECK_H_ */
