/* Takes a program's place where a worker (resident.py) does its work: hands over the open descriptors,
   then passes signals on until the worker reports the end. The worker finds all else in /proc.
   Unless a worker takes the work, the program of the folder ORDINARY is started. */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 250 }; /* descriptors; Linux passes at most 253 */

/* Writes the count of open descriptors, then their numbers; returns 0 if there are too many. */
static int list_descriptors(int *list) {
  DIR *folder = opendir("/proc/self/fd");
  list[0] = folder ? 0 : MOST + 1;
  for (struct dirent *entry; list[0] <= MOST && (entry = readdir(folder));)
    if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder) && ++list[0] <= MOST)
      list[list[0]] = atoi(entry->d_name);
  if (folder) closedir(folder);
  return list[0] <= MOST;
}

/* Hands the listed descriptors to a worker of this user; returns the connection, or -1. */
static int hand_over(const int *list) {
  size_t size = list[0] * sizeof(int);
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  struct ucred peer;
  const char *folder = getenv("NNET3TOOLS_WORKER");
  if (!folder || strlen(folder) + sizeof "/socket" > sizeof to.sun_path) return -1;
  strcat(strcpy(to.sun_path, folder), "/socket");
  int worker = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(worker, (struct sockaddr *)&to, sizeof to) ||
      getsockopt(worker, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){sizeof peer}) || peer.uid != geteuid())
    return -1;
  union { struct cmsghdr header; char bytes[CMSG_SPACE(MOST * sizeof(int))]; } control = {0};
  control.header = (struct cmsghdr){CMSG_LEN(size), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.header), list + 1, size);
  struct iovec text = {(void *)list, size + sizeof(int)};
  struct msghdr message = {0, 0, &text, 1, list[0] ? &control : 0, list[0] ? CMSG_SPACE(size) : 0, 0};
  char answer;
  return sendmsg(worker, &message, MSG_NOSIGNAL) > 0 && recv(worker, &answer, 1, 0) == 1 ? worker : -1;
}

/* Passes a signal on, with 128 added if a terminal sent it to the whole group of processes. */
static void pass_on(int worker, int number, int from_terminal) {
  int stops = number == SIGTSTP && signal(SIGTSTP, SIG_DFL) != SIG_IGN;
  unsigned char byte = (stops ? SIGSTOP : number) | (stops || from_terminal ? 128 : 0);
  send(worker, &byte, 1, MSG_NOSIGNAL);
  if (stops) raise(SIGSTOP);
}

/* Ends as the program did, by the same signal if one ended it. */
static int end(int status) {
  sigset_t none;
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  sigprocmask(SIG_SETMASK, (sigemptyset(&none), &none), NULL);
  return 255;
}

int main(int argc, char **argv) {
  char path[8192];
  int list[MOST + 1], status, worker = list_descriptors(list) ? hand_over(list) : -1;
  const char *slash = argc ? strrchr(argv[0], '/') : NULL, *name = slash ? slash + 1 : argc ? argv[0] : "";
  if (worker < 0) {
    snprintf(path, sizeof path, "%s/%s", ORDINARY, name);
    unsetenv("NNET3TOOLS_WORKER");
    execv(path, argv);
    return perror(path), 127;
  }
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  for (int i = 1; i <= list[0]; i++)
    if (list[i] != 2) close(list[i]);
  struct pollfd ready[] = {{worker, POLLIN, 0}, {signalfd(-1, &all, SFD_CLOEXEC), POLLIN, 0}};
  struct signalfd_siginfo received;
  while (poll(ready, 2, -1), !ready[0].revents)
    if (read(ready[1].fd, &received, sizeof received) > 0 && received.ssi_signo != SIGCHLD)
      pass_on(worker, received.ssi_signo, received.ssi_code == SI_KERNEL);
  if (recv(worker, &status, sizeof status, 0) == sizeof status) return end(status);
  return fprintf(stderr, "ERROR (%s) its worker (nnet3-worker) has ended\n", name), 255;
}
