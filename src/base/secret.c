#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/sv.h"

/* Editors end a file with a newline, which does not belong to the secret. */
int secret_read(char ret[SECRET_MAX + 1], const char *what, const char *path, struct weir_error *error)
{
    char text[SECRET_MAX + 3];
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (n < 0)
        return err_set(error, WEIR_E_INVALID, "cannot use %s, the %s: %s", path, what, strerror(errno));
    sv rest = sv_of(text, (size_t)n), line = sv_cut(&rest, '\n');
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    bool good = line.len > 0 && line.len <= SECRET_MAX && rest.len == 0 && !memchr(line.ptr, '\0', line.len);
    if (good) {
        memcpy(ret, line.ptr, line.len);
        ret[line.len] = '\0';
    }
    explicit_bzero(text, sizeof text);
    if (good)
        return 0;
    return err_set(error, WEIR_E_INVALID, "%s, the %s, must contain the password as its only line, of 1 to %d bytes", path,
                   what, SECRET_MAX);
}
