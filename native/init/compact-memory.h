#pragma once

/* Makes the kernel compact memory until done or killed. Returns an exit status; prints a failure on stderr. */
int compact_memory(void);
