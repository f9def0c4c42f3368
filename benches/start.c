/* What the library costs before the first fetch and for it, in a process of its own that opens it:
 *
 *   start LIBRARY URL   prints: open_ms client_us fetch_us kib_per_client threads descriptors kib
 *
 * Threads and descriptors are those that a client has more than the process without one, idle; the
 * last is the memory that library, client and first fetch have taken.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <experiment.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS 1000

/* What is called, found in the library that is opened. */
static __typeof__(exp_config_new) *config_new;
static __typeof__(exp_config_set_server_url) *set_server_url;
static __typeof__(exp_client_new) *client_new;
static __typeof__(exp_fetch_v2) *fetch_v2;

static void fail(const char *what) {
    fprintf(stderr, "start: %s\n", what);
    exit(1);
}

static double now_micros(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int entries(const char *folder) {
    DIR *dir = opendir(folder);
    int count = 0;
    while (dir && readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static long resident_kib(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1)
        fail("no /proc/self/statm");
    fclose(statm);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol)
        fail(name);
    return symbol;
}

static exp_client *open_client(exp_config *config) {
    exp_client *client;
    if (client_new("key", config, &client, NULL) != EXP_OK)
        fail("no client");
    return client;
}

int main(int argc, char **argv) {
    if (argc != 3)
        fail("usage: start LIBRARY URL");
    long without = resident_kib();
    double began = now_micros();
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library)
        fail(dlerror());
    double opened = now_micros();
    *(void **)&config_new = find(library, "exp_config_new");
    *(void **)&set_server_url = find(library, "exp_config_set_server_url");
    *(void **)&client_new = find(library, "exp_client_new");
    *(void **)&fetch_v2 = find(library, "exp_fetch_v2");
    int threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");

    double asked = now_micros();
    exp_config *config = config_new();
    set_server_url(config, argv[2]);
    exp_client *client = open_client(config);
    double made = now_micros();
    threads = entries("/proc/self/task") - threads;
    descriptors = entries("/proc/self/fd") - descriptors;

    double sent = now_micros();
    exp_variants *variants;
    if (fetch_v2(client, NULL, NULL, &variants, NULL) != EXP_OK)
        fail("no variants");
    double answered = now_micros();

    long before = resident_kib();
    for (int i = 0; i < CLIENTS; i++)
        open_client(config);
    double kib = (double)(resident_kib() - before) / CLIENTS;

    printf("%.2f %.1f %.1f %.2f %d %d %ld\n", (opened - began) / 1e3, made - asked, answered - sent,
           kib, threads, descriptors, before - without);
}
