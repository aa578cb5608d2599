/* A librocm_smi64.so with two dies of one package, as of ROCm 6: the second has no power of its own, an unknown memory
 * activity, and fails one call once. Signatures and units are the library's. */
#include <stdint.h>
#include <string.h>

typedef uint32_t status;
enum { OK = 0, NOT_SUPPORTED = 2, BUSY = 16 };

static int busy_calls;

status rsmi_init(uint64_t flags) { (void)flags; return OK; }
status rsmi_shut_down(void) { return OK; }
status rsmi_num_monitor_devices(uint32_t *count) { *count = 2; return OK; }
status rsmi_dev_busy_percent_get(uint32_t device, uint32_t *value) {
    if (device == 1 && ++busy_calls == 2) return BUSY; /* passes */
    *value = device ? 89 : 90;
    return OK;
}
status rsmi_dev_memory_busy_percent_get(uint32_t device, uint32_t *value) { *value = device ? 0xFFFFFFFF : 31; return OK; }
status rsmi_dev_mem_overdrive_level_get(uint32_t device, uint32_t *value) { *value = device ? 5 : 0; return OK; }
status rsmi_dev_overdrive_level_get(uint32_t device, uint32_t *value) { (void)device; *value = 3; return OK; }
status rsmi_dev_perf_level_get(uint32_t device, uint32_t *value) { (void)device; *value = 0; return OK; }
status rsmi_dev_memory_usage_get(uint32_t device, uint32_t kind, uint64_t *value) {
    if (kind != 0) return NOT_SUPPORTED;
    *value = (device ? 48ULL : 16ULL) << 30;
    return OK;
}
status rsmi_dev_memory_total_get(uint32_t device, uint32_t kind, uint64_t *value) {
    (void)device;
    if (kind != 0) return NOT_SUPPORTED;
    *value = 64ULL << 30;
    return OK;
}
status rsmi_dev_temp_metric_get(uint32_t device, uint32_t sensor, uint32_t metric, int64_t *value) {
    if (sensor != 2 || metric != 0) return NOT_SUPPORTED;
    *value = device ? -4500 : 45000;
    return OK;
}
status rsmi_dev_power_get(uint32_t device, uint64_t *value, uint32_t *kind) {
    if (device) return NOT_SUPPORTED;
    *value = 312500000;
    *kind = 0;
    return OK;
}
status rsmi_dev_power_cap_get(uint32_t device, uint32_t sensor, uint64_t *value) {
    (void)sensor;
    *value = device ? 0 : 500000000;
    return OK;
}
status rsmi_dev_energy_count_get(uint32_t device, uint64_t *value, float *step, uint64_t *nanoseconds) {
    *value = 7000000000ULL + device;
    *step = 15.5f;
    *nanoseconds = 1;
    return OK;
}
status rsmi_dev_pci_id_get(uint32_t device, uint64_t *value) { *value = (uint64_t)(0xC100 + 0x100 * device); return OK; }
status rsmi_dev_unique_id_get(uint32_t device, uint64_t *value) { *value = 0x51a0000000000000ULL + device; return OK; }
status rsmi_dev_id_get(uint32_t device, uint16_t *value) { (void)device; *value = 0x740c; return OK; }
status rsmi_dev_name_get(uint32_t device, char *text, size_t size) { (void)device; strncpy(text, "AMD INSTINCT MI250", size); return OK; }
status rsmi_dev_vendor_name_get(uint32_t device, char *text, size_t size) { (void)device; strncpy(text, "Advanced Micro Devices, Inc. [AMD/ATI]", size); return OK; }
status rsmi_dev_vbios_version_get(uint32_t device, char *text, uint32_t size) { (void)device; strncpy(text, "113-D65209-073", size); return OK; }
