#pragma once

/* Syncs each file system in its own process. After `timeout_ms`, logs those not written. Blocks SIGCHLD. */
void sync_file_systems(int timeout_ms);
