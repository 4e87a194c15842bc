#pragma once

#define NAPI_VERSION 8
#include <node_api.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_ARGUMENTS 9

/*
 * The arguments of one call, read by index. An argument that is missing or has another type sets `bad` and throws a
 * TypeError that names it.
 */
struct arguments {
  napi_env env;
  napi_value values[MAX_ARGUMENTS];
  char *strings[MAX_ARGUMENTS]; /* owned */
  char **lists[MAX_ARGUMENTS];  /* owned, with their strings */
  bool bad;
};

void arguments_read(struct arguments *arguments, napi_env env, napi_callback_info info);

/* Frees the strings and lists. */
void arguments_release(struct arguments *arguments);

int64_t integer_argument(struct arguments *arguments, unsigned index);
bool boolean_argument(struct arguments *arguments, unsigned index);

/*
 * A string without a NUL inside. A view of bytes is accepted too, for names that are not UTF-8. Lives until
 * arguments_release. NULL when bad.
 */
const char *string_argument(struct arguments *arguments, unsigned index);

/* An array of strings without NULs inside, terminated by NULL. Lives until arguments_release. NULL when bad. */
char **strings_argument(struct arguments *arguments, unsigned index);

/* The memory of a Buffer or another view of bytes, which JavaScript owns. */
const void *bytes_argument(struct arguments *arguments, unsigned index, size_t *length);

/* A strong reference, which the caller must delete. NULL when bad. */
napi_ref function_argument(struct arguments *arguments, unsigned index);

/* An integer property of an object. */
int64_t property_argument(struct arguments *arguments, unsigned index, const char *name);

/* The result of a system call as JavaScript gets it: the result itself, or -errno when it is -1. */
napi_value call_result(napi_env env, int64_t result);

napi_value integer_value(napi_env env, int64_t integer);
napi_value pair_value(napi_env env, const int pair[2]);
