#pragma once

/* Mounts /proc, /sys and /dev where they are not mounted yet. Powers off when /proc or /sys cannot be had. */
void mount_early(void);

/* Undoes mount_early, before the root is switched. */
void unmount_early(void);

/* Makes the console descriptors 0, 1 and 2; without a console: nothing to read, and stderr is the kernel's log. */
void open_console(void);
