#pragma once

#include <stdbool.h>

/* Without a console, 0 and 1 are /dev/null and 2 is the kernel's log. `virtio`: waits for the device's console. */
void open_console(bool virtio);
