#pragma once

/* Deletes everything below the directory `fd` that is on the same device, and closes `fd`. Never follows a link. */
void delete_initramfs(int fd);
