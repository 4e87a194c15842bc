#include "call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies a string or a view of bytes and adds a NUL. Returns NULL for another value, or a NUL inside. */
static char *copy_of(napi_env env, napi_value value) {
  void *bytes = NULL;
  size_t length;
  bool is_text = napi_get_buffer_info(env, value, &bytes, &length) != napi_ok;
  if (is_text && napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return NULL;
  char *copy = malloc(length + 1);
  if (copy == NULL) return NULL;
  if (is_text)
    napi_get_value_string_utf8(env, value, copy, length + 1, &length);
  else if (length > 0)
    memcpy(copy, bytes, length);
  copy[length] = '\0';
  if (strlen(copy) == length) return copy;
  free(copy);
  return NULL;
}

static void free_list(char **list) {
  for (char **string = list; list != NULL && *string != NULL; string++) free(*string);
  free(list);
}

static char **copy_list(napi_env env, napi_value array) {
  uint32_t count = 0;
  if (napi_get_array_length(env, array, &count) != napi_ok) return NULL;
  char **list = calloc((size_t)count + 1, sizeof *list);
  for (uint32_t i = 0; list != NULL && i < count; i++) {
    napi_value element;
    if (napi_get_element(env, array, i, &element) == napi_ok && (list[i] = copy_of(env, element)) != NULL) continue;
    free_list(list);
    return NULL;
  }
  return list;
}

static bool take_bytes(const struct call *call, napi_value value, union argument *given) {
  bool is_buffer = false;
  /* napi_is_buffer accepts every typed array. */
  if (napi_is_buffer(call->env, value, &is_buffer) != napi_ok || !is_buffer) return false;
  if (napi_get_buffer_info(call->env, value, &given->data.bytes, &given->data.length) != napi_ok) return false;
  return !call->function->on_thread || napi_create_reference(call->env, value, 1, &given->data.kept) == napi_ok;
}

static bool take_function(napi_env env, napi_value value, napi_ref *reference) {
  napi_valuetype type = napi_undefined;
  napi_typeof(env, value, &type);
  return type == napi_function && napi_create_reference(env, value, 1, reference) == napi_ok;
}

static bool take_property(napi_env env, napi_value object, const char *name, int64_t *integer) {
  napi_value property;
  return napi_get_named_property(env, object, name, &property) == napi_ok &&
         napi_get_value_int64(env, property, integer) == napi_ok;
}

static bool take_integer_or_none(napi_env env, napi_value value, int64_t *integer) {
  napi_valuetype type = napi_undefined;
  napi_typeof(env, value, &type);
  *integer = -1;
  return type == napi_undefined || napi_get_value_int64(env, value, integer) == napi_ok;
}

static const char *take(const struct call *call, char letter, napi_value value, union argument *given) {
  napi_env env = call->env;
  bool is_true;
  switch (letter) {
    case 'i':
      return napi_get_value_int64(env, value, &given->integer) == napi_ok ? NULL : "an integer";
    case 'I':
      return take_integer_or_none(env, value, &given->integer) ? NULL : "an integer";
    case 'b':
      if (napi_get_value_bool(env, value, &is_true) != napi_ok) return "a boolean";
      given->integer = is_true;
      return NULL;
    case 's':
      return (given->string = copy_of(env, value)) != NULL ? NULL : "a string without a NUL";
    case 'l':
      return (given->strings = copy_list(env, value)) != NULL ? NULL : "an array of strings without NULs";
    case 'd':
      return take_bytes(call, value, given) ? NULL : "a view of bytes";
    case 'h':
      return take_property(env, value, "flags", &given->how.flags) &&
                     take_property(env, value, "mode", &given->how.mode) &&
                     take_property(env, value, "resolve", &given->how.resolve)
                 ? NULL
                 : "an object of integers";
    default:
      return take_function(env, value, &given->function) ? NULL : "a function";
  }
}

static bool take_all(struct call *call, const napi_value values[MAX_ARGUMENTS]) {
  for (unsigned index = 0; call->function->takes[index] != '\0'; index++) {
    const char *wanted = take(call, call->function->takes[index], values[index], &call->given[index]);
    if (wanted == NULL) continue;
    char message[80];
    snprintf(message, sizeof message, "argument %u must be %s", index + 1, wanted);
    napi_throw_type_error(call->env, "ERR_INVALID_ARG_TYPE", message);
    call->result = -EINVAL;
    return false;
  }
  return true;
}

/* Arguments that were not read are zero. */
static void release(const struct call *call) {
  const char *takes = call->function->takes;
  for (const union argument *given = call->given; *takes != '\0'; takes++, given++) {
    if (*takes == 's') free(given->string);
    if (*takes == 'l') free_list(given->strings);
    if (*takes == 'd' && given->data.kept != NULL) napi_delete_reference(call->env, given->data.kept);
    if (*takes == 'f' && given->function != NULL && call->result < 0) napi_delete_reference(call->env, given->function);
  }
  free(call->bytes);
}

static void run(struct call *call) {
  call->result = call->function->run(call);
  if (call->result == -1) call->result = -errno;
}

static napi_value pair_value(napi_env env, const int pair[2]) {
  napi_value array = NULL;
  napi_create_array_with_length(env, 2, &array);
  napi_set_element(env, array, 0, integer_value(env, pair[0]));
  napi_set_element(env, array, 1, integer_value(env, pair[1]));
  return array;
}

static napi_value outcome_of(const struct call *call) {
  napi_value buffer = NULL;
  if (call->result < 0) return integer_value(call->env, call->result);
  if (call->value != NULL) return call->value;
  if (call->has_pair) return pair_value(call->env, call->pair);
  if (call->bytes == NULL) return integer_value(call->env, call->result);
  if (napi_create_buffer_copy(call->env, call->length, call->bytes, NULL, &buffer) == napi_ok) return buffer;
  return integer_value(call->env, -ENOMEM);
}

static void execute(napi_env env, void *data) {
  (void)env;
  run(data);
}

static void complete(napi_env env, napi_status status, void *data) {
  struct call *call = data;
  if (status != napi_ok) call->result = -ECANCELED;
  napi_resolve_deferred(env, call->deferred, outcome_of(call));
  napi_delete_async_work(env, call->async);
  release(call);
  free(call);
}

static napi_value queue(const struct call *arrived) {
  napi_env env = arrived->env;
  napi_value promise, name;
  struct call *call = malloc(sizeof *call);
  if (call != NULL) *call = *arrived;
  if (call == NULL || napi_create_string_utf8(env, "system call", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_async_work(env, NULL, name, execute, complete, call, &call->async) != napi_ok) {
    release(arrived);
    free(call);
    napi_throw_error(env, NULL, "no work can be queued");
    return NULL;
  }
  napi_create_promise(env, &call->deferred, &promise);
  napi_queue_async_work(env, call->async);
  return promise;
}

napi_value call_function(napi_env env, napi_callback_info info) {
  napi_value values[MAX_ARGUMENTS], outcome = NULL;
  size_t count = MAX_ARGUMENTS;
  void *function;
  /* Node-API sets the missing arguments to undefined. */
  napi_get_cb_info(env, info, &count, values, NULL, &function);
  struct call call = {.env = env, .function = function};
  if (take_all(&call, values)) {
    if (call.function->on_thread) return queue(&call);
    run(&call);
    outcome = outcome_of(&call);
  }
  release(&call);
  return outcome;
}

int64_t pair_made(struct call *call, int result) {
  call->has_pair = result != -1;
  return result;
}

int64_t closed_after(int fd, int64_t result) {
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

napi_value integer_value(napi_env env, int64_t integer) {
  napi_value value = NULL;
  napi_create_int64(env, integer, &value);
  return value;
}
