/* For LD_PRELOAD: opens below the folders in REDIRECTED (colons between them) are looked up below REDIRECT_TO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static const char *redirected(const char *path, char *buffer, size_t size) {
    const char *folders = getenv("REDIRECTED"), *to = getenv("REDIRECT_TO");
    while (folders && to && *folders) {
        size_t length = strcspn(folders, ":");
        if (path && length && strncmp(path, folders, length) == 0) {
            snprintf(buffer, size, "%s%s", to, path);
            return buffer;
        }
        folders += length + (folders[length] == ':');
    }
    return path;
}

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...) {                       \
        char buffer[4096];                                             \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;      \
        va_end(rest);                                                  \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \
        return real(redirected(path, buffer, sizeof buffer), flags, mode); \
    }
OPEN(open)
OPEN(open64)
