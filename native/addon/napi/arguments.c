#include "arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void arguments_read(struct arguments *arguments, napi_env env, napi_callback_info info) {
  memset(arguments, 0, sizeof *arguments);
  arguments->env = env;
  size_t count = MAX_ARGUMENTS;
  /* Arguments that were not given are undefined, which every getter refuses. */
  napi_get_cb_info(env, info, &count, arguments->values, NULL, NULL);
}

static void free_list(char **list) {
  if (list == NULL) return;
  for (char **string = list; *string != NULL; string++) free(*string);
  free(list);
}

void arguments_release(struct arguments *arguments) {
  for (unsigned index = 0; index < MAX_ARGUMENTS; index++) {
    free(arguments->strings[index]);
    free_list(arguments->lists[index]);
  }
}

static void refuse(struct arguments *arguments, unsigned index, const char *expected) {
  if (arguments->bad) return;
  arguments->bad = true;
  char message[80];
  snprintf(message, sizeof message, "argument %u must be %s", index + 1, expected);
  napi_throw_type_error(arguments->env, "ERR_INVALID_ARG_TYPE", message);
}

int64_t integer_argument(struct arguments *arguments, unsigned index) {
  int64_t value = 0;
  if (napi_get_value_int64(arguments->env, arguments->values[index], &value) != napi_ok)
    refuse(arguments, index, "an integer");
  return value;
}

bool boolean_argument(struct arguments *arguments, unsigned index) {
  bool value = false;
  if (napi_get_value_bool(arguments->env, arguments->values[index], &value) != napi_ok)
    refuse(arguments, index, "a boolean");
  return value;
}

/* Copies a string or a view of bytes and adds a NUL. Returns NULL for any other value. */
static char *copy_of(napi_env env, napi_value value, size_t *length) {
  void *bytes;
  char *copy;
  if (napi_get_buffer_info(env, value, &bytes, length) == napi_ok) {
    copy = malloc(*length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, bytes, *length);
    copy[*length] = '\0';
    return copy;
  }
  if (napi_get_value_string_utf8(env, value, NULL, 0, length) != napi_ok) return NULL;
  copy = malloc(*length + 1);
  if (copy != NULL) napi_get_value_string_utf8(env, value, copy, *length + 1, length);
  return copy;
}

const char *string_argument(struct arguments *arguments, unsigned index) {
  size_t length;
  char *string = copy_of(arguments->env, arguments->values[index], &length);
  arguments->strings[index] = string;
  if (string != NULL && strlen(string) == length) return string;
  refuse(arguments, index, "a string without a NUL");
  return NULL;
}

/* Copies every string. Returns false at the first element that is not a string or contains a NUL. */
static bool copy_all(napi_env env, napi_value array, uint32_t count, char **list) {
  for (uint32_t i = 0; i < count; i++) {
    napi_value element;
    size_t length;
    if (napi_get_element(env, array, i, &element) != napi_ok) return false;
    list[i] = copy_of(env, element, &length);
    if (list[i] == NULL || strlen(list[i]) != length) return false;
  }
  return true;
}

char **strings_argument(struct arguments *arguments, unsigned index) {
  napi_value array = arguments->values[index];
  uint32_t count = 0;
  if (napi_get_array_length(arguments->env, array, &count) == napi_ok) {
    char **list = calloc((size_t)count + 1, sizeof *list);
    arguments->lists[index] = list;
    if (list != NULL && copy_all(arguments->env, array, count, list)) return list;
  }
  refuse(arguments, index, "an array of strings without NULs");
  return NULL;
}

const void *bytes_argument(struct arguments *arguments, unsigned index, size_t *length) {
  napi_env env = arguments->env;
  napi_value value = arguments->values[index];
  void *bytes = NULL;
  bool is_buffer = false;
  *length = 0;
  /* napi_is_buffer accepts every typed array. */
  if (napi_is_buffer(env, value, &is_buffer) != napi_ok || !is_buffer ||
      napi_get_buffer_info(env, value, &bytes, length) != napi_ok)
    refuse(arguments, index, "a view of bytes");
  return bytes;
}

napi_ref function_argument(struct arguments *arguments, unsigned index) {
  napi_valuetype type = napi_undefined;
  napi_ref reference = NULL;
  napi_typeof(arguments->env, arguments->values[index], &type);
  if (type != napi_function) {
    refuse(arguments, index, "a function");
    return NULL;
  }
  if (arguments->bad) return NULL;
  if (napi_create_reference(arguments->env, arguments->values[index], 1, &reference) != napi_ok)
    refuse(arguments, index, "a function that can be kept");
  return reference;
}

int64_t property_argument(struct arguments *arguments, unsigned index, const char *name) {
  napi_value property;
  int64_t value = 0;
  if (napi_get_named_property(arguments->env, arguments->values[index], name, &property) != napi_ok ||
      napi_get_value_int64(arguments->env, property, &value) != napi_ok)
    refuse(arguments, index, "an object of integers");
  return value;
}

napi_value integer_value(napi_env env, int64_t integer) {
  napi_value value = NULL;
  napi_create_int64(env, integer, &value);
  return value;
}

napi_value call_result(napi_env env, int64_t result) {
  return integer_value(env, result == -1 ? -errno : result);
}

napi_value pair_value(napi_env env, const int pair[2]) {
  napi_value array = NULL;
  napi_create_array_with_length(env, 2, &array);
  napi_set_element(env, array, 0, integer_value(env, pair[0]));
  napi_set_element(env, array, 1, integer_value(env, pair[1]));
  return array;
}
