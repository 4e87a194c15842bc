#include "pool.h"

#include <errno.h>
#include <stdlib.h>

static void release(napi_env env, struct pool_work *work) {
  if (work->kept != NULL) napi_delete_reference(env, work->kept);
  arguments_release(&work->arguments);
  free(work->bytes);
  free(work);
}

static void execute(napi_env env, void *data) {
  (void)env;
  struct pool_work *work = data;
  work->run(work);
}

static napi_value outcome_of(napi_env env, napi_status status, const struct pool_work *work) {
  if (status != napi_ok) return integer_value(env, -ECANCELED);
  if (work->result < 0) return integer_value(env, work->result);
  if (work->pair != NULL) return pair_value(env, work->pair);
  if (work->bytes == NULL) return integer_value(env, work->result);
  napi_value buffer = NULL;
  if (napi_create_buffer_copy(env, work->length, work->bytes, NULL, &buffer) != napi_ok)
    return integer_value(env, -ENOMEM);
  return buffer;
}

static void complete(napi_env env, napi_status status, void *data) {
  struct pool_work *work = data;
  napi_resolve_deferred(env, work->deferred, outcome_of(env, status, work));
  napi_delete_async_work(env, work->async);
  release(env, work);
}

void *pool_begin(napi_env env, napi_callback_info info, size_t size) {
  struct pool_work *work = calloc(1, size);
  if (work == NULL)
    napi_throw_error(env, NULL, "out of memory");
  else
    arguments_read(&work->arguments, env, info);
  return work;
}

void pool_keep(napi_env env, struct pool_work *work, unsigned index) {
  struct arguments *arguments = &work->arguments;
  if (arguments->bad || napi_create_reference(env, arguments->values[index], 1, &work->kept) == napi_ok) return;
  arguments->bad = true;
  napi_throw_error(env, NULL, "the bytes cannot be kept");
}

napi_value pool_queue(napi_env env, struct pool_work *work, void (*run)(struct pool_work *work)) {
  napi_value promise, name;
  if (work->arguments.bad) {
    release(env, work);
    return NULL;
  }
  work->run = run;
  if (napi_create_string_utf8(env, "system call", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_async_work(env, NULL, name, execute, complete, work, &work->async) != napi_ok) {
    release(env, work);
    napi_throw_error(env, NULL, "no work can be queued");
    return NULL;
  }
  napi_create_promise(env, &work->deferred, &promise);
  napi_queue_async_work(env, work->async);
  return promise;
}
