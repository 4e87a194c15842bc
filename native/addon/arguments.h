#pragma once

#define NAPI_VERSION 8
#include <node_api.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_ARGUMENTS 7

/*
 * The arguments of one call. Each is asked for by its index; one of another type than asked for, or missing, makes
 * the set bad and throws a TypeError that names it.
 */
struct arguments {
  napi_env env;
  napi_value values[MAX_ARGUMENTS];
  char *strings[MAX_ARGUMENTS];  /* owned */
  char **lists[MAX_ARGUMENTS];   /* owned, with their strings */
  bool bad;
};

void arguments_read(struct arguments *arguments, napi_env env, napi_callback_info info);
/* Frees the strings and lists. */
void arguments_release(struct arguments *arguments);

int64_t integer_argument(struct arguments *arguments, unsigned index);
bool boolean_argument(struct arguments *arguments, unsigned index);
/*
 * A string, or a view of bytes for a name that is not UTF-8, without a NUL inside; lives until arguments_release. NULL
 * when bad.
 */
const char *string_argument(struct arguments *arguments, unsigned index);
/* An array of strings without NULs inside, ended by NULL; lives until arguments_release. NULL when bad. */
char **strings_argument(struct arguments *arguments, unsigned index);
/* A Buffer or other view of bytes. */
const void *bytes_argument(struct arguments *arguments, unsigned index, size_t *length);
/* The strong reference becomes the caller's. NULL when bad. */
napi_ref function_argument(struct arguments *arguments, unsigned index);
/* The integer property of an object. */
int64_t property_argument(struct arguments *arguments, unsigned index, const char *name);

/* A result of a system call for JavaScript: itself, or -errno when it is -1. */
napi_value call_result(napi_env env, int64_t result);
napi_value integer_value(napi_env env, int64_t integer);
napi_value pair_value(napi_env env, const int pair[2]);
