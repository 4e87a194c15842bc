#pragma once

#include <stdbool.h>

/* Returns a non-blocking socket for the kernel's ACPI events, or -1 with errno set: ENOENT without ACPI. */
int power_button_open(void);

/* Reads what has come, and returns whether the power button was pressed. */
bool power_button_pressed(int fd);
