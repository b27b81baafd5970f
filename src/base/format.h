#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H

#include <stdarg.h>
#include <stdio.h>

/* For a function whose last parameters are `format, ...`: writes its arguments into the array `text`, as snprintf does. */
#define FORMAT_ARGUMENTS(text, format)                  \
    do {                                                \
        va_list args_;                                  \
        va_start(args_, format);                        \
        vsnprintf((text), sizeof(text), format, args_); \
        va_end(args_);                                  \
    } while (0)

#endif
