#define _GNU_SOURCE
#include "request-name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../protocol.h"

/* Protobuf tags of the fields 1 and 2 of ttrpc.Request, both text. */
#define SERVICE_TAG 0x0a
#define METHOD_TAG 0x12

/* No name of the agent's API is longer, and one byte holds the length. */
#define LONGEST_TEXT 75

/* Returns the length of the next field if it is text with this tag, or 0. */
static size_t read_text(const unsigned char *bytes, size_t left, unsigned char tag) {
  if (left < 2 || bytes[0] != tag || bytes[1] > LONGEST_TEXT || bytes[1] > left - 2) return 0;
  for (size_t i = 0; i < bytes[1]; i++)
    if (!isalnum(bytes[2 + i]) && bytes[2 + i] != '.' && bytes[2 + i] != '_') return 0;
  return bytes[1];
}

void request_name(const struct frame *request, char name[REQUEST_NAME_BYTES]) {
  strcpy(name, "an unknown method");
  size_t first = request->filled < HEAD_BYTES ? request->filled : HEAD_BYTES;
  if (first <= FRAME_HEADER_BYTES) return;
  const unsigned char *bytes = request->head + FRAME_HEADER_BYTES;
  size_t left = first - FRAME_HEADER_BYTES;
  size_t service = read_text(bytes, left, SERVICE_TAG);
  if (service == 0) return;
  const unsigned char *next = bytes + 2 + service;
  size_t method = read_text(next, left - 2 - service, METHOD_TAG);
  if (method == 0) return;
  snprintf(name, REQUEST_NAME_BYTES, "%.*s/%.*s", (int)service, (const char *)bytes + 2, (int)method,
           (const char *)next + 2);
}
