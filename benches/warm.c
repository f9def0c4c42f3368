/* One fetch after another over a kept connection, by one of several clients, so that all of them
 * are measured by the same code:
 *
 *   warm DRIVER COUNT URL [CA_FILE]      prints: DRIVER p50_us p99_us p99.9_us cpu_us
 *   warm lookup COUNT URL [CA_FILE]      prints: lookup ns_per_lookup
 *
 * DRIVER is bare (a socket and nothing else; HTTP only), curl, or exp.
 */
#include "driver.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define USER "{\"user_id\":\"user-1234\",\"device_id\":\"device-5678\"}"

static const char *server_url;
static const char *ca_file;

/* bare: what the network and the kernel cost, and no client */

static int bare_socket;
static char bare_request[1024];

static void bare_open(void) {
    char host[64];
    unsigned port;
    if (sscanf(server_url, "http://%63[^:]:%u", host, &port) != 2)
        fail("bare speaks http://host:port only");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int one = 1;
    bare_socket = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(bare_socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        connect(bare_socket, (struct sockaddr *)&address, sizeof address) != 0)
        fail("bare cannot connect");
    snprintf(bare_request, sizeof bare_request,
             "POST /sdk/v2/vardata?v=0 HTTP/1.1\r\nHost: %s:%u\r\nAuthorization: Api-Key key\r\n"
             "Content-Type: application/json;charset=utf-8\r\nContent-Length: %zu\r\n\r\n" USER,
             host, port, sizeof USER - 1);
}

static void bare_fetch(void) {
    char answer[65536];
    size_t have = 0;
    const char *body = NULL;
    size_t length = 0;
    send(bare_socket, bare_request, strlen(bare_request), MSG_NOSIGNAL);
    do {
        ssize_t got = recv(bare_socket, answer + have, sizeof answer - 1 - have, 0);
        if (got <= 0)
            fail("bare: the connection ended");
        have += (size_t)got;
        answer[have] = 0;
        if (!body && (body = strstr(answer, "\r\n\r\n"))) {
            body += 4;
            length = strtoul(strcasestr(answer, "content-length:") + 15, NULL, 10);
        }
    } while (!body || answer + have < body + length);
}

/* curl: an easy handle, reused */

static CURL *curl;

static size_t curl_write(char *data, size_t size, size_t count, void *total) {
    (void)data;
    *(size_t *)total += size * count;
    return size * count;
}

static size_t curl_total;

static void curl_open(void) {
    static char url[256];
    struct curl_slist *headers = NULL;
    snprintf(url, sizeof url, "%s/sdk/v2/vardata?v=0", server_url);
    curl = curl_easy_init();
    headers = curl_slist_append(headers, "Authorization: Api-Key key");
    headers = curl_slist_append(headers, "Content-Type: application/json;charset=utf-8");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, USER);
    curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "gzip");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 10000L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, curl_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &curl_total);
    if (ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file);
}

static void curl_fetch(void) {
    if (curl_easy_perform(curl) != CURLE_OK)
        fail("curl: the fetch failed");
}

/* exp: this library */

static exp_client *client;
static exp_user *user;

static void exp_open(void) {
    exp_config *config = exp_config_new();
    exp_config_set_server_url(config, server_url);
    if (ca_file)
        exp_config_set_ca_file(config, ca_file);
    client = new_client(config);
    user = new_user();
}

static void exp_fetch(void) { exp_free(fetch_for(client, user)); }

/* measuring */

static void measure(const char *name, void (*open)(void), void (*fetch)(void), long count) {
    double *took = malloc((size_t)count * sizeof *took);
    open();
    fetch(); /* connects */
    double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < count; i++) {
        double began = now(CLOCK_MONOTONIC);
        fetch();
        took[i] = (now(CLOCK_MONOTONIC) - began) * 1e6;
    }
    cpu = (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e6 / (double)count;
    qsort(took, (size_t)count, sizeof *took, ascending);
    printf("%s %.2f %.2f %.2f %.2f\n", name, took[count / 2], took[count * 99 / 100],
           took[count * 999 / 1000], cpu);
    free(took);
}

static void measure_lookup(long count) {
    exp_open();
    exp_variants *variants = fetch_for(client, user);
    const char *keys[64];
    size_t n = exp_variants_count(variants);
    if (n > 64)
        n = 64;
    for (size_t i = 0; i < n; i++)
        keys[i] = exp_variant_flag_key(exp_variants_at(variants, i));
    size_t found = 0;
    double began = now(CLOCK_MONOTONIC);
    for (long i = 0; i < count; i++)
        found += exp_variants_get(variants, keys[(size_t)i % n]) != NULL;
    double took = now(CLOCK_MONOTONIC) - began;
    if (found != (size_t)count)
        fail("a variant was not found");
    printf("lookup %.1f\n", took * 1e9 / (double)count);
    exp_free(variants);
}

int main(int argc, char **argv) {
    if (argc < 4)
        fail("usage: warm bare|curl|exp|lookup COUNT URL [CA_FILE]");
    const char *driver = argv[1];
    long count = strtol(argv[2], NULL, 10);
    server_url = argv[3];
    ca_file = argc > 4 ? argv[4] : NULL;
    if (strcmp(driver, "bare") == 0)
        measure(driver, bare_open, bare_fetch, count);
    else if (strcmp(driver, "curl") == 0)
        measure(driver, curl_open, curl_fetch, count);
    else if (strcmp(driver, "exp") == 0)
        measure(driver, exp_open, exp_fetch, count);
    else if (strcmp(driver, "lookup") == 0)
        measure_lookup(count);
    else
        fail("no such driver");
    return 0;
}
