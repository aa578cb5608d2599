/* libtpu.so as a monitor sees it: a table of functions, and metrics as lists of texts.
 *
 * They come from the file that LIBTPU_SHIM_TABLE names: one line each, fields between tabs, name, description, values.
 * Each function takes a struct of arguments and results, and gives an error or nothing.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_METRICS 64
#define MOST_VALUES 64

typedef void *function(void *);

struct metric {
    char *name, *description, *values[MOST_VALUES];
    size_t count;
};

static struct metric metrics[MOST_METRICS];
static size_t known;
static char the_client, the_error;

static void load(void) {
    static char line[1 << 16];
    const char *path = getenv("LIBTPU_SHIM_TABLE");
    FILE *file = path && !known ? fopen(path, "r") : NULL;
    while (file && known < MOST_METRICS && fgets(line, sizeof line, file)) {
        struct metric *metric = &metrics[known++];
        char *rest = strdup(line);
        rest[strcspn(rest, "\n")] = 0;
        metric->name = strsep(&rest, "\t");
        metric->description = strsep(&rest, "\t");
        while (rest && metric->count < MOST_VALUES) metric->values[metric->count++] = strsep(&rest, "\t");
    }
    if (file) fclose(file);
}

struct message { void *error; const char *text; size_t length; };
static void *error_message(void *arguments) {
    struct message *out = arguments;
    out->text = "no such metric";
    out->length = strlen(out->text);
    return NULL;
}

static void *nothing(void *arguments) { (void)arguments; return NULL; }

struct client { void *client; };
static void *create_client(void *arguments) {
    load();
    ((struct client *)arguments)->client = &the_client;
    return NULL;
}

struct lookup { void *client; const char *name; void *metric; };
static void *get_metric(void *arguments) {
    struct lookup *out = arguments;
    for (size_t i = 0; i < known; i++)
        if (!strcmp(metrics[i].name, out->name)) {
            out->metric = &metrics[i];
            return NULL;
        }
    return &the_error;
}

struct text { struct metric *metric; const char *text; size_t length; };
static void *get_description(void *arguments) {
    struct text *out = arguments;
    out->text = out->metric->description;
    out->length = strlen(out->text);
    return NULL;
}

struct texts { struct metric *metric; char **texts; size_t count; };
static void *get_values(void *arguments) {
    struct texts *out = arguments;
    out->texts = out->metric->values;
    out->count = out->metric->count;
    return NULL;
}

static struct {
    uint32_t versions[2];
    function *at_08, *at_10, *at_18, *at_20, *at_28, *at_30, *at_38, *at_40, *at_48, *at_50, *at_58, *at_60;
} api = {
    {0, 1}, error_message, nothing, NULL, create_client, nothing, NULL, NULL, NULL, NULL,
    get_metric, get_description, get_values,
};

const void *GetLibtpuSdkApi(void) { return &api; }
