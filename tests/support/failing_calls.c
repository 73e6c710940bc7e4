/* LD_PRELOAD library: system calls on files below a folder fail now and then, repeatably.

   Environment:
   FAILING_FOLDER   the folder (absolute, without links)
   FAILING_STATE    a folder for the counter of processes and the list of failures (`failures`)
   FAILING_SEED     seed; together with the process's number and the call's number it decides
   FAILING_ONE_IN   a call fails with probability 1 / this number (0: never)
   FAILING_AT       instead: exactly call number N of process number P fails, as "P:N:KIND"
   FAILING_KINDS    letters of kinds: i EIO, n ENOSPC, e ESTALE, s short, d delay, r EINTR
   FAILING_CLOCK    hours by which the clock of the day jumps forward and back, every 0.1 s (0: not)

   A line of the list: process number, call number, kind, call, path. The last line of a process
   that ends is "process, number of calls, end". A process with the library may call fail_at(). */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READS = 1, WRITES = 2, MAKES = 4, SHORT = 8, SLEEPS = 16 };

static char folder[PATH_MAX];
static size_t folder_length;
static const char *state;
static const char *kinds = "ined";
static uint64_t seed, one_in, at_process, at_call;
static char at_kind;
static int lists_all;
static long clock_hours;
static uint64_t process;
static atomic_ullong calls;
static int ready;

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t number(const char *name) {
    const char *text = getenv(name);
    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

static void tell(const char *text) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/failures", state);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    syscall(SYS_write, file, text, strlen(text));
    syscall(SYS_close, file);
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAILING_FOLDER");
    state = getenv("FAILING_STATE");
    clock_hours = (long)number("FAILING_CLOCK");
    seed = number("FAILING_SEED");
    one_in = number("FAILING_ONE_IN");
    if (getenv("FAILING_KINDS") != NULL && *getenv("FAILING_KINDS")) kinds = getenv("FAILING_KINDS");
    const char *at = getenv("FAILING_AT");
    if (at != NULL)
        sscanf(at, "%lu:%lu:%c", &at_process, &at_call, &at_kind);
    if (name == NULL || state == NULL) return;
    snprintf(folder, sizeof folder, "%s", name);
    folder_length = strlen(folder);
    state = strdup(state);
    kinds = strdup(kinds);
    char path[PATH_MAX + 16], text[32] = "";
    snprintf(path, sizeof path, "%s/processes", state);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return;
    flock(file, LOCK_EX);
    syscall(SYS_pread64, file, text, sizeof text - 1, 0L);
    process = strtoull(text, NULL, 10);
    int length = snprintf(text, sizeof text, "%lu\n", process + 1);
    syscall(SYS_pwrite64, file, text, (size_t)length, 0L);
    syscall(SYS_close, file);
    ready = 1;
}

__attribute__((destructor)) static void end(void) {
    char text[64];
    if (!ready || calls == 0) return;
    snprintf(text, sizeof text, "%lu %llu end - -\n", process, (unsigned long long)calls);
    tell(text);
}

/* From here on only call number `call` of this process fails, as `kind`; 0: none, all are listed. */
void fail_at(uint64_t call, char kind) {
    at_process = process;
    at_call = call;
    at_kind = kind;
    lists_all = call == 0;
    one_in = 0;
    calls = 0;
}

static int is_below(const char *path) {
    return strncmp(path, folder, folder_length) == 0 && (path[folder_length] == '/' || path[folder_length] == 0);
}

/* The path of a descriptor, or of `path` relative to the folder of descriptor `at`. */
static int place(int at, const char *path, char *found, size_t size) {
    if (path != NULL && path[0] == '/') {
        snprintf(found, size, "%s", path);
        return 1;
    }
    char name[64];
    if (at == AT_FDCWD)
        snprintf(name, sizeof name, "/proc/self/cwd");
    else
        snprintf(name, sizeof name, "/proc/self/fd/%d", at);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, name, found, size - 1);
    if (length < 0) return 0;
    found[length] = 0;
    if (path != NULL && *path) snprintf(found + length, size - (size_t)length, "/%s", path);
    return 1;
}

/* The letter of the failure of this call; 0: it does not fail. */
static char failure(const char *call, int at, const char *path, int what) {
    char found[PATH_MAX * 2], text[PATH_MAX * 2 + 128], kind = 0;
    if (!ready || (one_in == 0 && at_call == 0 && !lists_all)) return 0;
    int before = errno;
    int counts = place(at, path, found, sizeof found) && is_below(found);
    errno = before;
    if (!counts) return 0;
    uint64_t mine = ++calls;
    if (at_call) {
        if (process == at_process && mine == at_call) kind = at_kind;
    } else if (lists_all) {
        snprintf(text, sizeof text, "%lu %lu - %s %s\n", process, mine, call, found);
        tell(text);
        errno = before;
    } else {
        uint64_t draw = mixed(mixed(mixed(seed) + process) + mine);
        if (draw % one_in == 0) {
            draw = mixed(draw);
            kind = kinds[draw % strlen(kinds)];
        }
    }
    if ((kind == 's' && !(what & SHORT)) || (kind == 'r' && !(what & SLEEPS))) kind = 'd';
    if (kind == 'n' && !(what & (WRITES | MAKES))) kind = 'i';
    if (kind) {
        snprintf(text, sizeof text, "%lu %lu %c %s %s\n", process, mine, kind, call, found);
        tell(text);
        errno = before;
    }
    return kind;
}

/* Whether the call fails, with errno set; a delay is spent here. */
static int fails(char kind) {
    switch (kind) {
    case 'i': errno = EIO; return 1;
    case 'n': errno = ENOSPC; return 1;
    case 'e': errno = ESTALE; return 1;
    case 'r': errno = EINTR; return 1;
    case 'd': usleep((useconds_t)(1000 + mixed(calls) % 49000)); return 0;
    default: return 0;
    }
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) *(void **)&real = next(name);

#define STOPS(call, at, path, what, result) \
    if (fails(failure(call, at, path, what))) return result;

static int makes(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...) \
        va_list rest; va_start(rest, flags); \
        mode_t mode = makes(flags) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        STOPS("open", AT_FDCWD, path, SLEEPS | (makes(flags) ? MAKES : 0), -1) \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...) \
        va_list rest; va_start(rest, flags); \
        mode_t mode = makes(flags) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        STOPS("open", at, path, SLEEPS | (makes(flags) ? MAKES : 0), -1) \
        return real(at, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(FILE *, #name, const char *, const char *) \
        STOPS("open", AT_FDCWD, path, *mode == 'r' ? 0 : MAKES, NULL) \
        return real(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* Calls that transfer `count` bytes; a short one transfers fewer, but not 0. */
#define TRANSFER(name, call, buffer, what) \
    ssize_t name(int file, buffer data, size_t count) { \
        REAL(ssize_t, #name, int, buffer, size_t) \
        char kind = failure(call, file, NULL, what | SHORT | SLEEPS); \
        if (fails(kind)) return -1; \
        if (kind == 's' && count > 1) count = 1 + mixed(calls) % (count - 1); \
        return real(file, data, count); \
    }
TRANSFER(read, "read", void *, READS)
TRANSFER(write, "write", const void *, WRITES)
#define TRANSFER_AT(name, call, buffer, what, offset) \
    ssize_t name(int file, buffer data, size_t count, offset where) { \
        REAL(ssize_t, #name, int, buffer, size_t, offset) \
        char kind = failure(call, file, NULL, what | SHORT | SLEEPS); \
        if (fails(kind)) return -1; \
        if (kind == 's' && count > 1) count = 1 + mixed(calls) % (count - 1); \
        return real(file, data, count, where); \
    }
TRANSFER_AT(pread, "read", void *, READS, off_t)
TRANSFER_AT(pread64, "read", void *, READS, off64_t)
TRANSFER_AT(pwrite, "write", const void *, WRITES, off_t)
TRANSFER_AT(pwrite64, "write", const void *, WRITES, off64_t)
#define VECTOR(name, call, what) \
    ssize_t name(int file, const struct iovec *parts, int count) { \
        REAL(ssize_t, #name, int, const struct iovec *, int) \
        STOPS(call, file, NULL, what | SLEEPS, -1) \
        return real(file, parts, count); \
    }
VECTOR(readv, "read", READS)
VECTOR(writev, "write", WRITES)
#define SEND(name, offset) \
    ssize_t name(int to, int from, offset *where, size_t count) { \
        REAL(ssize_t, #name, int, int, offset *, size_t) \
        STOPS("write", to, NULL, WRITES, -1) \
        return real(to, from, where, count); \
    }
SEND(sendfile, off_t)
SEND(sendfile64, off64_t)

int fsync(int file) {
    REAL(int, "fsync", int)
    STOPS("fsync", file, NULL, WRITES, -1)
    return real(file);
}
int fdatasync(int file) {
    REAL(int, "fdatasync", int)
    STOPS("fsync", file, NULL, WRITES, -1)
    return real(file);
}
/* As on Linux, the descriptor is closed even if close() fails. */
int close(int file) {
    REAL(int, "close", int)
    int flags = ready ? (int)syscall(SYS_fcntl, file, F_GETFL) : 0;
    char kind = failure("close", file, NULL, (flags & O_ACCMODE) == O_RDONLY ? 0 : WRITES);
    int result = real(file);
    return fails(kind) ? -1 : result;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *)
    STOPS("unlink", AT_FDCWD, path, 0, -1)
    return real(path);
}
int unlinkat(int at, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int)
    STOPS("unlink", at, path, 0, -1)
    return real(at, path, flags);
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *)
    STOPS("rmdir", AT_FDCWD, path, 0, -1)
    return real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t)
    STOPS("mkdir", AT_FDCWD, path, MAKES, -1)
    return real(path, mode);
}
int mkdirat(int at, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t)
    STOPS("mkdir", at, path, MAKES, -1)
    return real(at, path, mode);
}
int rename(const char *path, const char *to) {
    REAL(int, "rename", const char *, const char *)
    STOPS("rename", AT_FDCWD, to, MAKES, -1)
    return real(path, to);
}
int renameat(int at, const char *path, int there, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *)
    STOPS("rename", there, to, MAKES, -1)
    return real(at, path, there, to);
}
int link(const char *path, const char *to) {
    REAL(int, "link", const char *, const char *)
    STOPS("link", AT_FDCWD, to, MAKES, -1)
    return real(path, to);
}
int linkat(int at, const char *path, int there, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int)
    STOPS("link", there, to, MAKES, -1)
    return real(at, path, there, to, flags);
}
int symlink(const char *target, const char *path) {
    REAL(int, "symlink", const char *, const char *)
    STOPS("symlink", AT_FDCWD, path, MAKES, -1)
    return real(target, path);
}
int symlinkat(const char *target, int at, const char *path) {
    REAL(int, "symlinkat", const char *, int, const char *)
    STOPS("symlink", at, path, MAKES, -1)
    return real(target, at, path);
}
int access(const char *path, int mode) {
    REAL(int, "access", const char *, int)
    STOPS("access", AT_FDCWD, path, 0, -1)
    return real(path, mode);
}
int faccessat(int at, const char *path, int mode, int flags) {
    REAL(int, "faccessat", int, const char *, int, int)
    STOPS("access", at, path, 0, -1)
    return real(at, path, mode, flags);
}
int fchmod(int file, mode_t mode) {
    REAL(int, "fchmod", int, mode_t)
    STOPS("chmod", file, NULL, 0, -1)
    return real(file, mode);
}
ssize_t readlink(const char *path, char *target, size_t size) {
    REAL(ssize_t, "readlink", const char *, char *, size_t)
    STOPS("readlink", AT_FDCWD, path, 0, -1)
    return real(path, target, size);
}

#define STAT(name, type) \
    int name(const char *path, struct type *found) { \
        REAL(int, #name, const char *, struct type *) \
        STOPS("stat", AT_FDCWD, path, 0, -1) \
        return real(path, found); \
    }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)
#define FSTAT(name, type) \
    int name(int file, struct type *found) { \
        REAL(int, #name, int, struct type *) \
        STOPS("stat", file, NULL, 0, -1) \
        return real(file, found); \
    }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)
#define FSTATAT(name, type) \
    int name(int at, const char *path, struct type *found, int flags) { \
        REAL(int, #name, int, const char *, struct type *, int) \
        STOPS("stat", at, path, 0, -1) \
        return real(at, path, found, flags); \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)
int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    REAL(int, "statx", int, const char *, int, unsigned, struct statx *)
    STOPS("stat", at, path, 0, -1)
    return real(at, path, flags, mask, found);
}

DIR *opendir(const char *path) {
    REAL(DIR *, "opendir", const char *)
    STOPS("opendir", AT_FDCWD, path, 0, NULL)
    return real(path);
}
DIR *fdopendir(int file) {
    REAL(DIR *, "fdopendir", int)
    STOPS("opendir", file, NULL, 0, NULL)
    return real(file);
}
#define READDIR(name, type) \
    struct type *name(DIR *opened) { \
        REAL(struct type *, #name, DIR *) \
        STOPS("readdir", dirfd(opened), NULL, 0, NULL) \
        return real(opened); \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

#define MMAP(name, offset) \
    void *name(void *where, size_t size, int use, int flags, int file, offset start) { \
        REAL(void *, #name, void *, size_t, int, int, int, offset) \
        if (file >= 0) STOPS("mmap", file, NULL, 0, MAP_FAILED) \
        return real(where, size, use, flags, file, start); \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

/* The clock of the day: the offset changes every 0.1 s, to and fro. */
static time_t offset(void) {
    struct timespec now;
    if (clock_hours == 0) return 0;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    uint64_t tick = (uint64_t)now.tv_sec * 10 + (uint64_t)now.tv_nsec / 100000000;
    return (time_t)(mixed(seed + tick) % (uint64_t)(2 * clock_hours * 3600 + 1)) - clock_hours * 3600;
}
int clock_gettime(clockid_t clock, struct timespec *found) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *)
    int result = real(clock, found);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += offset();
    return result;
}
time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL) *found = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    REAL(int, "gettimeofday", struct timeval *, void *)
    int result = real(found, zone);
    if (result == 0) found->tv_sec += offset();
    return result;
}
