/* A wall clock that is off by NUDGE_SKEW seconds, for one process: cc -shared -fPIC -o skew.so skew.c, then LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

typedef int (*clock_function)(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *time) {
    static clock_function real;
    static long skew;
    if (!real) {
        const char *text = getenv("NUDGE_SKEW");
        skew = text ? atol(text) : 0;
        real = (clock_function)dlsym(RTLD_NEXT, "clock_gettime");
    }
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        time->tv_sec += skew;
    }
    return result;
}
