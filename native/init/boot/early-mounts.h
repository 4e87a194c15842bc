#pragma once

/* Mounts /proc, /sys and /dev unless they are mounted. Powers off when /proc or /sys cannot be mounted. */
void mount_early(void);

/* Unmounts what mount_early has mounted, before the root is switched. */
void unmount_early(void);

/* Opens the console as descriptors 0, 1 and 2. Without a console 0 and 1 are /dev/null and 2 is the kernel's log. */
void open_console(void);
