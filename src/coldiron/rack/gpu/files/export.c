/* The table of unnamed functions that nvidia-smi asks for. What its slots mean was found by watching which it calls:
 * one gives the device of an index, three list processes by what they do; the rest may succeed and say nothing. */
#include <string.h>

#include "state.h"

enum { SLOTS = 384, SLOT_DEVICE = 81, SLOT_COMPUTE = 213, SLOT_GRAPHICS = 214, SLOT_MPS = 215 };

nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process_info *processes);
nvmlReturn nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size);

struct named_process {
    struct process_detail process;
    char name[4096];
};

static nvmlReturn slot_nothing(void)
{
    return NVML_SUCCESS;
}

static nvmlReturn slot_device(unsigned long index, void **device)
{
    return nvmlDeviceGetHandleByIndex_v2((unsigned)index, device);
}

static nvmlReturn slot_compute(void *device, unsigned *count, struct named_process *processes)
{
    struct process_info found[PROCESSES];
    unsigned number = PROCESSES;
    nvmlReturn result = nvmlDeviceGetComputeRunningProcesses_v3(device, &number, found);
    if (result != NVML_SUCCESS || !processes)
        number = 0;
    for (unsigned n = 0; n < number && n < *count; n++) {
        memset(&processes[n], 0, sizeof processes[n]);
        processes[n].process = (struct process_detail){found[n].pid, found[n].used_memory, found[n].gpu_instance,
                                                       found[n].compute_instance, 0};
        nvmlSystemGetProcessName(found[n].pid, processes[n].name, sizeof processes[n].name);
    }
    *count = number;
    return result;
}

static nvmlReturn slot_none(void *device, unsigned *count)
{
    (void)device;
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlInternalGetExportTable(const void **table, const void *name)
{
    static const void *slots[SLOTS];
    (void)name;
    if (!slots[0]) {
        for (int n = 1; n < SLOTS; n++)
            slots[n] = (const void *)slot_nothing;
        slots[SLOT_DEVICE] = (const void *)slot_device;
        slots[SLOT_COMPUTE] = (const void *)slot_compute;
        slots[SLOT_GRAPHICS] = slots[SLOT_MPS] = (const void *)slot_none;
        slots[0] = (const void *)sizeof slots;
    }
    *table = slots;
    return NVML_SUCCESS;
}
