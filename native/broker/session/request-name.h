#pragma once

#include "../store/frame.h"

#define REQUEST_NAME_BYTES 160

/* Writes `SERVICE/METHOD` or `an unknown method`. Looks only at these two fields, which clients send first. */
void request_name(const struct frame *request, char name[REQUEST_NAME_BYTES]);
