#pragma once

#include "../store/frame.h"

#define REQUEST_NAME_BYTES 160

/*
 * Writes which method a request calls, as `SERVICE/METHOD`, or `an unknown method`. The fields of its ttRPC message that
 * say so come first in what clients send; nothing else of it is looked at.
 */
void request_name(const struct frame *request, char name[REQUEST_NAME_BYTES]);
