#pragma once

/* Prepares the guest. An initramfs that holds `agent_directory` is the root itself. Powers off on failure. */
void boot(const char *agent_directory);
