#pragma once

/* Writes one line `vminit: …` to stderr. Never blocks: a line that nobody takes is dropped. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
