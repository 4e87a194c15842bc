#pragma once

/*
 * Has the kernel compact the memory of the machine, which ends early when this process is killed. Returns the exit
 * status; the reason of a failure is on stderr.
 */
int compact_memory(void);
