/* A libnvidia-ml.so.1 with one device, so that the real binding is tested without a driver.
 * Structures are NVML's; what is not defined here is FUNCTION_NOT_FOUND to the binding, as with an old driver. */
#include <string.h>

typedef int result;
typedef void *handle;
enum { OK = 0, NOT_SUPPORTED = 3, UNKNOWN = 999 };

static int utilization_calls;

result nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(result code) { return code == NOT_SUPPORTED ? "Not Supported" : "Unknown Error"; }
result nvmlSystemGetCudaDriverVersion(int *version) { *version = 12040; return OK; }
result nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return OK; }
result nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) { (void)index; *device = &utilization_calls; return OK; }
result nvmlDeviceGetUUID(handle device, char *text, unsigned size) { (void)device; strncpy(text, "GPU-5417", size); return OK; }
result nvmlDeviceGetName(handle device, char *text, unsigned size) { (void)device; strncpy(text, "Shim H100", size); return OK; }
result nvmlDeviceGetArchitecture(handle device, unsigned *value) { (void)device; *value = 9; return OK; }
result nvmlDeviceGetTemperature(handle device, int sensor, unsigned *value) { (void)device; (void)sensor; *value = 61; return OK; }
result nvmlDeviceGetPowerUsage(handle device, unsigned *value) { (void)device; *value = 350000; return OK; }
result nvmlDeviceGetEnforcedPowerLimit(handle device, unsigned *value) { (void)device; *value = 700000; return OK; }
result nvmlDeviceGetTotalEnergyConsumption(handle device, unsigned long long *value) { (void)device; *value = 123456; return OK; }
result nvmlDeviceGetClockInfo(handle device, int clock, unsigned *value) { (void)device; *value = 1000 + clock; return OK; }
result nvmlDeviceGetFanSpeed_v2(handle device, unsigned fan, unsigned *value) { (void)device; (void)fan; (void)value; return NOT_SUPPORTED; }

struct utilization { unsigned gpu, memory; };
result nvmlDeviceGetUtilizationRates(handle device, struct utilization *rates) {
    (void)device;
    if (++utilization_calls == 2) return UNKNOWN; /* passes */
    rates->gpu = 98;
    rates->memory = 54;
    return OK;
}

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
result nvmlDeviceGetMemoryInfo_v2(handle device, struct memory *memory) {
    (void)device;
    memory->total = 80ULL << 30;
    memory->used = 20ULL << 30;
    return OK;
}

result nvmlDeviceGetMemoryErrorCounter(handle device, int kind, int counter, int location, unsigned long long *value) {
    (void)device; (void)counter; (void)location;
    *value = kind ? 1 : 7;
    return OK;
}

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
result nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process *found) {
    (void)device;
    if (*count < 1) { *count = 1; return 7; } /* insufficient size: the binding asks again */
    *count = 1;
    found[0].pid = 4242;
    found[0].used = 1ULL << 30;
    return OK;
}
result nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned *count, struct process *found) {
    (void)device; (void)found;
    *count = 0;
    return OK;
}

struct support { unsigned version, supported; };
struct metric { unsigned id; result status; double value; const char *names[3]; };
struct metrics { unsigned version, count; void *first, *second; struct metric metric[]; };
static int samples[2], allocated;
result nvmlGpmQueryDeviceSupport(handle device, struct support *support) { (void)device; support->supported = 1; return OK; }
result nvmlGpmSampleAlloc(void **sample) { *sample = &samples[allocated++ % 2]; return OK; }
result nvmlGpmSampleFree(void *sample) { (void)sample; return OK; }
result nvmlGpmSampleGet(handle device, void *sample) { static int now; (void)device; *(int *)sample = ++now; return OK; }
result nvmlGpmMetricsGet(struct metrics *metrics) {
    if (*(int *)metrics->second != *(int *)metrics->first + 1) return UNKNOWN; /* samples in the wrong order */
    for (unsigned i = 0; i < metrics->count; i++) {
        struct metric *metric = &metrics->metric[i];
        metric->status = metric->id == 12 ? NOT_SUPPORTED : OK;
        metric->value = metric->id + 0.5;
    }
    return OK;
}
