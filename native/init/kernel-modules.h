#pragma once

/* Loads the modules that `/modules/order` names, one file name a line, in that order. Without that file: none. */
void load_modules(void);
