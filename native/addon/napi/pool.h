#pragma once

#include "addon.h"
#include "arguments.h"

/* One blocking call on a thread of libuv's pool. The first member of the struct that holds the call's own data. */
struct pool_work {
  struct arguments arguments; /* owns the strings */
  napi_ref kept;              /* keeps the bytes that the call works on alive, or NULL */
  /* The outcome: -errno in `result`; otherwise the pair, the bytes, or `result` itself. */
  int result;
  char *bytes; /* owned, or NULL */
  size_t length;
  const int *pair; /* two integers that live as long as the work, or NULL */

  void (*run)(struct pool_work *work);
  napi_async_work async;
  napi_deferred deferred;
};

/* Allocates `size` zeroed bytes for a call and reads its arguments. Throws and returns NULL when there is no memory. */
void *pool_begin(napi_env env, napi_callback_info info, size_t size);

/* Keeps the view of bytes at `index` from being collected until the call ends. */
void pool_keep(napi_env env, struct pool_work *work, unsigned index);

/* Runs `run` on a thread and returns the promise of its outcome. Takes ownership of the work, also when it throws. */
napi_value pool_queue(napi_env env, struct pool_work *work, void (*run)(struct pool_work *work));
