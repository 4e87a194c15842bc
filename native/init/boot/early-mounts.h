#pragma once

/* Mounts /proc, /sys and /dev unless they are mounted. Powers off when /proc or /sys cannot be mounted. */
void mount_early(void);

void unmount_early(void);
