#pragma once

#include <stdbool.h>

/*
 * Opens the console as descriptors 0, 1 and 2. Without a console 0 and 1 are /dev/null and 2 is the kernel's log. With
 * `virtio`, the command line names a virtio console: one whose device is there is waited for.
 */
void open_console(bool virtio);
