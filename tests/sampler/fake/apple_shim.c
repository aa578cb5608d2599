/* The parts of CoreFoundation, IOReport and IOKit that the probe uses, for Linux. Objects are counted: what is created
 * or copied and not released shows in `live_objects`, and a release too many ends the process. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct object {
    enum { TEXT, NUMBER, LIST, CHANNEL, SUBSCRIPTION, DICT, PLAIN } kind;
    int references;
    char text[64], group[32], subgroup[40], unit[8];
    int64_t value, times[8];
    char states[8][8];
    int state_count, item_count;
    struct object *items[16];
} object;

int live_objects, live_handles, fail_samples, no_energy, sample_count;
char kCFTypeDictionaryKeyCallBacks, kCFTypeDictionaryValueCallBacks;
uint32_t mach_task_self_ = 515;

static object *new(int kind) {
    object *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->references = 1;
    live_objects++;
    return made;
}

void CFRelease(object *it) {
    if (!it || it->references <= 0) abort();
    if (--it->references) return;
    for (int i = 0; i < it->item_count; i++) CFRelease(it->items[i]);
    live_objects--;
    free(it);
}

static object *keep(object *it) { it->references++; return it; }
static object *text(const char *words) { object *made = new(TEXT); strncpy(made->text, words, 63); return made; }
object *CFStringCreateWithCString(void *allocator, const char *words, uint32_t encoding) {
    if (allocator || encoding != 0x08000100) abort();
    return text(words);
}
bool CFStringGetCString(object *it, char *buffer, long size, uint32_t encoding) {
    if (it->kind != TEXT || encoding != 0x08000100) abort();
    if ((long)strlen(it->text) >= size) return false;
    strcpy(buffer, it->text);
    return true;
}
object *CFNumberCreate(void *allocator, long type, int32_t *value) {
    (void)allocator;
    if (type != 3) abort();
    object *made = new(NUMBER);
    made->value = *value;
    return made;
}
object *CFDictionaryCreate(void *allocator, object **keys, object **values, long count, void *of_keys, void *of_values) {
    (void)allocator;
    if (of_keys != &kCFTypeDictionaryKeyCallBacks || of_values != &kCFTypeDictionaryValueCallBacks || count != 2) abort();
    if (strcmp(keys[0]->text, "PrimaryUsagePage") || values[0]->value != 0xFF00 || values[1]->value != 5) abort();
    object *made = new(DICT);
    for (long i = 0; i < count; i++) made->items[made->item_count++] = keep(values[i]);
    return made;
}
long CFDictionaryGetCount(object *it) { return it->item_count; }
object *CFDictionaryGetValue(object *it, object *key) { return strcmp(key->text, "IOReportChannels") ? NULL : it; }
long CFArrayGetCount(object *it) { return it->item_count; }
object *CFArrayGetValueAtIndex(object *it, long index) { return it->items[index]; }
object *CFDictionaryCreateMutableCopy(void *allocator, long count, object *it) {
    (void)allocator;
    if (count != it->item_count) abort();
    object *made = new(LIST);
    for (int i = 0; i < it->item_count; i++) made->items[made->item_count++] = keep(it->items[i]);
    return made;
}

/* --- IOReport: each sample counts one more second of the same activity */

static object *channel(const char *group, const char *subgroup, const char *name, const char *unit, int64_t value) {
    object *made = new(CHANNEL);
    strcpy(made->group, group);
    strcpy(made->subgroup, subgroup);
    strcpy(made->text, name);
    strcpy(made->unit, unit);
    made->value = value;
    return made;
}
static object *with(object *made, const char *state, int64_t time) {
    strcpy(made->states[made->state_count], state);
    made->times[made->state_count++] = time;
    return made;
}
object *IOReportCopyChannelsInGroup(object *group, object *subgroup, uint64_t a, uint64_t b, uint64_t c) {
    if (a || b || c || (strcmp(group->text, "Energy Model") && !subgroup)) abort();
    object *made = new(LIST);
    if (!strcmp(group->text, "Energy Model")) {
        made->items[made->item_count++] = channel("Energy Model", "", "GPU Energy", "nJ", 9120250000);
        made->items[made->item_count++] = channel("Energy Model", "", "CPU Energy", "mJ ", 4812);
        made->items[made->item_count++] = channel("Energy Model", "", "ANE0", "mJ", 0);
    } else if (!strcmp(subgroup->text, "GPU Performance States")) {
        object *gpu = channel("GPU Stats", subgroup->text, "GPUPH", "", 0);
        made->items[made->item_count++] = with(with(with(gpu, "OFF", 270000000), "P1", 100000000), "P2", 630000000);
    } else if (!strcmp(subgroup->text, "CPU Core Performance States")) {
        object *core = channel("CPU Stats", subgroup->text, "PCPU040", "", 0);
        made->items[made->item_count++] = with(with(with(core, "IDLE", 200000000), "V0P2", 300000000), "V1P1", 500000000);
    }
    if (made->item_count) return made;
    CFRelease(made);
    return NULL;
}
void IOReportMergeChannels(object *into, object *from, void *nothing) {
    (void)nothing;
    for (int i = 0; i < from->item_count; i++) into->items[into->item_count++] = keep(from->items[i]);
}
object *IOReportCreateSubscription(void *a, object *channels, object **subscribed, uint64_t b, void *c) {
    if (a || b || c) abort();
    *subscribed = keep(channels);
    return no_energy ? NULL : new(SUBSCRIPTION);
}
object *IOReportCreateSamples(object *subscription, object *channels, void *nothing) {
    (void)nothing;
    if (subscription->kind != SUBSCRIPTION) abort();
    if (fail_samples) return NULL;
    object *made = CFDictionaryCreateMutableCopy(NULL, channels->item_count, channels);
    made->value = ++sample_count;
    return made;
}
object *IOReportCreateSamplesDelta(object *before, object *after, void *nothing) {
    (void)nothing;
    int64_t passed = after->value - before->value;
    object *made = new(LIST);
    for (int i = 0; i < after->item_count; i++) {
        object *copy = new(CHANNEL), *from = after->items[i];
        int references = copy->references;
        *copy = *from;
        copy->references = references;
        copy->value *= passed;
        for (int state = 0; state < copy->state_count; state++) copy->times[state] *= passed;
        made->items[made->item_count++] = copy;
    }
    return made;
}

/* Texts that a channel lends: one pool, never released by the caller. */
static object *lent(const char *words) {
    static object pool[64];
    static int next;
    if (!*words) return NULL;
    object *it = &pool[next++ % 64];
    *it = (object){.kind = TEXT, .references = 0};
    strcpy(it->text, words);
    return it;
}
object *IOReportChannelGetGroup(object *it) { return lent(it->group); }
object *IOReportChannelGetSubGroup(object *it) { return lent(it->subgroup); }
object *IOReportChannelGetChannelName(object *it) { return lent(it->text); }
object *IOReportChannelGetUnitLabel(object *it) { return lent(it->unit); }
int64_t IOReportSimpleGetIntegerValue(object *it, int index) { return index ? 0 : it->value; }
int IOReportStateGetCount(object *it) { return it->state_count; }
object *IOReportStateGetNameForIndex(object *it, int index) { return lent(it->states[index]); }
int64_t IOReportStateGetResidency(object *it, int index) { return it->times[index]; }

/* --- IOKit: the registry and the controller */

struct message { /* as the kernel's driver declares it */
    uint32_t key;
    struct { uint8_t major, minor, build, reserved; uint16_t release; } version;
    struct { uint16_t version, length; uint32_t cpu, gpu, memory; } limits;
    struct { uint32_t size, type; uint8_t attributes; } info;
    uint8_t result, status, command;
    uint32_t index;
    uint8_t data[32];
};
_Static_assert(sizeof(struct message) == 80, "the controller's message");

static struct { const char *key, *type; float value; } sensors[] = {
    {"#KEY", "ui32", 0}, {"F0Ac", "flt ", 1200}, {"PSTR", "flt ", 21.4f}, {"Te05", "flt ", 47}, {"Tg05", "flt ", 48.5f},
    {"Tg0D", "flt ", 0}, {"Tp01", "flt ", 51.25f}, {"Tp05", "flt ", 53.75f}, {"TpXX", "ui16", 0},
    {"Tg\xfe\xff", "flt ", 0},
};
enum { SENSORS = sizeof sensors / sizeof *sensors };
int no_sensors, busy;
static uint32_t letters(const char *key) {
    const uint8_t *byte = (const uint8_t *)key;
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | (uint32_t)byte[3];
}

static uint32_t next_service;
object *IOServiceMatching(const char *name) { return text(name); }
int IOServiceGetMatchingServices(uint32_t port, object *matching, uint32_t *iterator) {
    if (port || strcmp(matching->text, "AppleSMC")) abort();
    CFRelease(matching); /* consumed */
    *iterator = next_service = 100;
    live_handles++;
    return 0;
}
uint32_t IOIteratorNext(uint32_t iterator) {
    if (iterator != 100) abort();
    if (next_service == 102) return 0;
    live_handles++;
    return ++next_service;
}
int IORegistryEntryGetName(uint32_t entry, char *name) { strcpy(name, entry == 101 ? "AppleSMCOther" : "AppleSMCKeysEndpoint"); return 0; }
int IOObjectRelease(uint32_t entry) { (void)entry; live_handles--; return 0; }
int IOServiceOpen(uint32_t service, uint32_t task, uint32_t type, uint32_t *connection) {
    if (service != 102 || task != 515 || type) abort();
    *connection = 7;
    live_handles++;
    return 0;
}
int IOServiceClose(uint32_t connection) { if (connection != 7) abort(); live_handles--; return 0; }
int IOConnectCallStructMethod(uint32_t connection, uint32_t selector, struct message *in, size_t in_size, struct message *out, size_t *out_size) {
    if (connection != 7 || selector != 2 || in_size != 80 || *out_size != 80) return 0xE00002C2;
    memset(out, 0, sizeof *out);
    if (in->command == 8) {
        if (in->index >= SENSORS || no_sensors) { out->result = 132; return 0; }
        out->key = letters(sensors[in->index].key);
        return 0;
    }
    for (int i = 0; i < SENSORS; i++) {
        if (letters(sensors[i].key) != in->key) continue;
        if (in->command == 9) {
            out->info.type = letters(sensors[i].type);
            out->info.size = 4;
        } else if (busy) {
            out->result = 3;
        } else if (in->command == 5 && in->info.size == 4) {
            uint8_t count[4] = {0, 0, 0, SENSORS};
            memcpy(out->data, i ? (void *)&sensors[i].value : count, 4);
        } else out->result = 1;
        return 0;
    }
    out->result = 132; /* no such key */
    return 0;
}

/* --- the sensors' own interface */

object *IOHIDEventSystemClientCreate(void *allocator) { (void)allocator; return new(PLAIN); }
int IOHIDEventSystemClientSetMatching(object *system, object *matching) { return system->kind == PLAIN && matching->kind == DICT ? 0 : 1; }
object *IOHIDEventSystemClientCopyServices(object *system) {
    (void)system;
    static const char *names[] = {"pACC MTR Temp Sensor0", "eACC MTR Temp Sensor0", "GPU MTR Temp Sensor1", "battery"};
    static const int tenths[] = {501, 464, 479, 300};
    object *made = new(LIST);
    for (int i = 0; i < 4; i++) {
        object *service = new(PLAIN);
        strcpy(service->text, names[i]);
        service->value = tenths[i];
        made->items[made->item_count++] = service;
    }
    return made;
}
object *IOHIDServiceClientCopyProperty(object *service, object *key) { return strcmp(key->text, "Product") ? NULL : text(service->text); }
object *IOHIDServiceClientCopyEvent(object *service, int64_t type, int32_t options, int64_t timeout) {
    if (type != 15 || options || timeout || service->value == 300) return NULL;
    return keep(service);
}
double IOHIDEventGetFloatValue(object *event, int64_t field) { return field == 15 << 16 ? event->value / 10.0 : -1.0; }
