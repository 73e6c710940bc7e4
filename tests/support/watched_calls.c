/* Preloaded into a process and its children: appends each file that is opened, each program that is
started and each connection to the file $WATCHED_CALLS, one a line: r, w, x or c, and a path. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AT_FDCWD -100 /* not <fcntl.h>: it declares open with "..." */
#define APPEND 02001 /* O_WRONLY | O_APPEND */
#define KIND(flags) ((flags) & 0103 ? 'w' : 'r') /* O_WRONLY, O_RDWR, O_CREAT */

static void record(char kind, const char *path) {
  const char *log = getenv("WATCHED_CALLS");
  if (log == NULL || path == NULL) return;
  char line[PATH_MAX + 4];
  int size = snprintf(line, sizeof line, "%c %s\n", kind, path);
  if (size >= (int)sizeof line) size = sizeof line - 1, line[size - 1] = '\n';
  int file = (int)syscall(SYS_openat, AT_FDCWD, log, APPEND);
  if (file < 0) return;
  if (syscall(SYS_write, file, line, size) != size) abort();
  syscall(SYS_close, file);
}

#define WATCHED(type, name, parameters, kind, path, ...)                         \
  type name parameters {                                                         \
    record(kind, path);                                                          \
    return ((type(*) parameters)dlsym(RTLD_NEXT, #name))(__VA_ARGS__);           \
  }
#define OPEN(a, f, m) (const char *a, int f, unsigned m)
WATCHED(int, open, OPEN(a, f, m), KIND(f), a, a, f, m)
WATCHED(int, open64, OPEN(a, f, m), KIND(f), a, a, f, m)
WATCHED(int, openat, (int d, const char *a, int f, unsigned m), KIND(f), a, d, a, f, m)
WATCHED(int, openat64, (int d, const char *a, int f, unsigned m), KIND(f), a, d, a, f, m)
WATCHED(FILE *, fopen, (const char *a, const char *m), strpbrk(m, "wa+") ? 'w' : 'r', a, a, m)
WATCHED(FILE *, fopen64, (const char *a, const char *m), strpbrk(m, "wa+") ? 'w' : 'r', a, a, m)
WATCHED(FILE *, popen, (const char *a, const char *m), 'x', a, a, m)
WATCHED(int, system, (const char *a), 'x', a, a)
WATCHED(int, connect, (int s, const struct sockaddr *a, socklen_t n), 'c', "a socket", s, a, n)
#define WORDS char *const words[], char *const env[]
WATCHED(int, execve, (const char *a, WORDS), 'x', a, a, words, env)
WATCHED(int, execv, (const char *a, char *const words[]), 'x', a, a, words)
WATCHED(int, execvp, (const char *a, char *const words[]), 'x', a, a, words)
#define SPAWN (pid_t *p, const char *a, const posix_spawn_file_actions_t *f, \
               const posix_spawnattr_t *t, WORDS)
WATCHED(int, posix_spawn, SPAWN, 'x', a, p, a, f, t, words, env)
WATCHED(int, posix_spawnp, SPAWN, 'x', a, p, a, f, t, words, env)
