#pragma once

#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../functions.h"

#define MAX_ARGUMENTS 9

/* An argument, by its letter in the function's table. */
union argument {
  int64_t integer; /* i; b: 0 or 1; I: an integer that may be missing, then -1 */
  /*
   * s: a string without a NUL inside, owned by the call. A view of bytes is accepted too, for names that are not UTF-8.
   */
  char *string;
  char **strings; /* l: an array of such strings, terminated by NULL, owned by the call */
  struct {        /* d: the memory of a Buffer or another view of bytes, which JavaScript owns */
    void *bytes;
    size_t length;
    napi_ref kept; /* while a thread works on it */
  } data;
  struct { /* h: an object of the integers of struct open_how */
    int64_t flags, mode, resolve;
  } how;
  napi_ref function; /* f: a strong reference, which the callee owns unless it returns a negative number */
};

/* One call of a function of the addon. */
struct call {
  napi_env env;
  const struct addon_function *function;
  union argument given[MAX_ARGUMENTS];
  /* What JavaScript gets unless the function returns a negative number: the value, the pair, the bytes, or that number. */
  napi_value value; /* not for a function that runs on a thread */
  int pair[2];
  bool has_pair;
  char *bytes; /* owned, or NULL */
  size_t length;
  int64_t result; /* of the function; -errno instead of -1 */
  napi_async_work async;
  napi_deferred deferred;
};

/* The callback of every function: reads the arguments and calls it, on a thread of libuv's pool if its table says so. */
napi_value call_function(napi_env env, napi_callback_info info);

/* Has JavaScript get `call->pair` unless `result` is -1. */
int64_t pair_made(struct call *call, int result);

/* Closes a descriptor, and returns the result of the system call before with its errno. */
int64_t closed_after(int fd, int64_t result);

napi_value integer_value(napi_env env, int64_t integer);
