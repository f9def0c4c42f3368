/* The smallest program that has a client. */
#include <experiment.h>
#include <stdio.h>

int main(void) {
    exp_client *client;
    exp_error *error;
    int status = exp_client_new("key", NULL, &client, &error);
    if (status != EXP_OK)
        fprintf(stderr, "%s\n", exp_error_message(error));
    exp_free(error);
    exp_free(client);
    return status;
}
