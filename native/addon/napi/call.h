#pragma once

#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../functions.h"

#define MAX_ARGUMENTS 11

/* An argument, by its letter in the function's table. */
union argument {
  int64_t integer; /* i; b: 0 or 1; I: an integer that may be missing, then -1 */
  char *string;    /* s: without a NUL inside, owned by the call; also from a view of bytes: a name may not be UTF-8 */
  char **strings;  /* l: an array of such strings, terminated by NULL, owned by the call */
  struct {         /* d: the bytes of a Buffer or another view, which JavaScript owns */
    void *bytes;
    size_t length;
    napi_ref kept; /* while a thread works on it */
  } data;
  struct { /* h: an object of the integers of struct open_how */
    int64_t flags, mode, resolve;
  } how;
  napi_ref function; /* f: a strong reference, which the callee owns unless it returns a negative number */
};

struct call {
  napi_env env;
  const struct addon_function *function;
  union argument given[MAX_ARGUMENTS];
  /* JavaScript gets `result` if it is negative, otherwise the value, the pair, the bytes or `result`. */
  napi_value value; /* unset on a thread */
  int pair[2];
  bool has_pair;
  char *bytes;
  size_t length;
  int64_t result; /* -errno instead of -1 */
  napi_async_work async;
  napi_deferred deferred;
};

napi_value call_function(napi_env env, napi_callback_info info);

/* Returns `result`. Unless it is -1, JavaScript gets `call->pair`. */
int64_t pair_made(struct call *call, int result);

/* Closes a descriptor and returns `result`. Keeps errno. */
int64_t closed_after(int fd, int64_t result);

napi_value integer_value(napi_env env, int64_t integer);
