#pragma once

/* Writes one line `vminit: …` to stderr. Never blocks: drops the line when stderr takes no data. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
