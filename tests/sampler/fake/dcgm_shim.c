/* A libdcgm.so.4 that answers for three devices, by the daemon's numbers 0, 1, 2; NVML's are 1, 0, 2. DCGM_SHIM names
 * what is wrong: "down" (no daemon), "none" (no counters), "restart" (it ends after its first answer and is back after
 * one connection was refused), "nameless" (it does not tell NVML's number of device 0), or nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
enum { OK = 0, BAD_PARAMETER = -1, NOT_SUPPORTED = -6, NO_DATA = -15, NO_CONNECTION = -21 };
enum { GPU = 1, SWITCH = 3, DEVICES = 3, CONNECTION = 77, WATCHED = 99, ALL_GPUS = 0x7fffffff };

struct group { unsigned short major, minor; unsigned count; unsigned short fields[64]; };
struct groups { unsigned version, unused, gpu, count; struct group groups[10]; };
struct value {
    unsigned version;
    unsigned short field, kind;
    int status;
    int64_t time;
    union { int64_t integer; double real; char text[256]; char blob[4096]; } value;
};
typedef int (*receive)(unsigned group, unsigned device, struct value *values, int count, void *data);

static unsigned short watched[32];
static int watched_count, watching, updates, connections, answers;
static char group_name[64];

static int wrong(const char *what) { return getenv("DCGM_SHIM") && !strcmp(getenv("DCGM_SHIM"), what); }

result dcgmInit(void) { return OK; }
result dcgmShutdown(void) { return OK; }
const char *dcgmErrorString(result code) { (void)code; return "some error"; }
const char *errorString(result code) { return dcgmErrorString(code); }
result dcgmConnect(const char *address, uintptr_t *connection) {
    if (wrong("down") || strcmp(address, "localhost:5555")) return NO_CONNECTION;
    if (wrong("restart") && ++connections == 2) return NO_CONNECTION;
    *connection = CONNECTION;
    return OK;
}

result dcgmProfGetSupportedMetricGroups(uintptr_t connection, struct groups *groups) {
    if (connection != CONNECTION || groups->version != (sizeof(struct groups) | 3u << 24)) return BAD_PARAMETER;
    if (wrong("none")) return NOT_SUPPORTED;
    groups->count = 2;
    groups->groups[0] = (struct group){0, 0, 9, {1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1014}};
    groups->groups[1] = (struct group){1, 0, 4, {1009, 1010, 1011, 1012}};
    return OK;
}

result dcgmFieldGroupCreate(uintptr_t connection, int count, const unsigned short *fields, const char *name, uintptr_t *group) {
    if (connection != CONNECTION || !*name || !strcmp(name, group_name) || count > 32) return BAD_PARAMETER;
    strncpy(group_name, name, sizeof group_name - 1);
    memcpy(watched, fields, count * sizeof *fields);
    watched_count = count;
    *group = WATCHED;
    return OK;
}

result dcgmWatchFields(uintptr_t connection, uintptr_t devices, uintptr_t group, long long period, double age, int samples) {
    (void)age;
    if (connection != CONNECTION || devices != ALL_GPUS || group != WATCHED) return BAD_PARAMETER;
    watching = period >= 1000000 && period <= 5000000 && samples == 2;
    return watching ? OK : BAD_PARAMETER;
}

result dcgmUpdateAllFields(uintptr_t connection, int wait) { updates++; return connection == CONNECTION && (wait & ~1) == 0 ? OK : BAD_PARAMETER; }

static struct value told(int device, unsigned short field) {
    static const int nvml[DEVICES] = {1, 0, 2};
    struct value value = {.version = sizeof(struct value) | 1 << 24, .field = field, .time = 1700000000000000 + updates};
    if (field == 52) {
        value.kind = 'i';
        value.value.integer = wrong("nameless") && device == 0 ? 0x7ffffffffffffff0 : nvml[device];
    } else if (field == 54) {
        value.kind = 's';
        strcpy(value.value.text, "GPU-a");
        value.value.text[4] += nvml[device];
    } else if (field >= 1009 && field <= 1012) {
        value.kind = 'i';
        value.value.integer = 1000000LL * (field - 1000) + nvml[device];
        if (device == 2) value.value.integer = 0x7ffffffffffffff1; /* blank: not found */
    } else {
        value.kind = 'd';
        value.value.real = (field - 1000) / 64.0;
        if (device == 2) value.value.real = 140737488355330.0; /* blank: not supported */
    }
    if (field == 1006 && device == 1) value.status = NOT_SUPPORTED;
    return value;
}

result dcgmGetLatestValues_v2(uintptr_t connection, uintptr_t devices, uintptr_t group, receive callback, void *data) {
    if (connection != CONNECTION || devices != ALL_GPUS || group != WATCHED || !watching) return BAD_PARAMETER;
    if (wrong("restart") && answers++ == 1) {
        watching = 0;
        return NO_CONNECTION;
    }
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; i < watched_count; i++) {
            struct value value = told(device, watched[i]);
            if (callback(GPU, device, &value, 1, data)) return OK;
        }
    return OK;
}
