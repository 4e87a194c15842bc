#pragma once

/*
 * Writes what the kernel has not written to the file systems yet, each in a process of its own. Returns once all are
 * written, or after `timeout_ms` with a line for each that is not. Blocks SIGCHLD.
 */
void sync_file_systems(int timeout_ms);
