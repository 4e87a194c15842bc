#pragma once

/*
 * Prepares the guest for the agent: mounts, console, root, kernel settings. An initramfs that holds `agent_directory` is
 * the root itself. Powers off when the preparation fails.
 */
void boot(const char *agent_directory);
