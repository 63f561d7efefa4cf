/* Who uses the GPUs, and how much of them. */
#include "access.h"

static int belongs(const struct process *process, const struct handle *handle)
{
    if (!process->used || process->gpu != (unsigned)handle->gpu)
        return 0;
    return handle->kind == KIND_GPU ||
           (process->instance == handle->instance + 1 && process->compute == handle->compute);
}

int busy(const struct state *state, int gpu)
{
    for (int n = 0; n < PROCESSES; n++)
        if (state->processes[n].used && state->processes[n].gpu == (unsigned)gpu)
            return 1;
    return 0;
}

unsigned long long used_mib(const struct state *state, const struct handle *handle)
{
    unsigned long long sum = 1;
    for (int n = 0; n < PROCESSES; n++)
        if (belongs(&state->processes[n], handle))
            sum += state->processes[n].memory_mib;
    return sum;
}

/* The instance of a process, as NVML says that there is none. */
static unsigned numbered(int instance)
{
    return instance < 0 ? 0xffffffffu : (unsigned)instance;
}

API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process_info *processes)
{
    LOOK(device_look, device);
    unsigned room = processes ? *count : 0, number = 0;
    for (int n = 0; n < PROCESSES; n++) {
        const struct process *one = &state->processes[n];
        if (!belongs(one, handle))
            continue;
        if (number < room)
            processes[number] = (struct process_info){one->pid, (unsigned long long)one->memory_mib << 20,
                                                      numbered(one->instance), numbered(one->compute)};
        number++;
    }
    *count = number;
    return number > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, struct process_info *processes)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

API nvmlReturn nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, struct process_info_v1 *processes)
{
    struct process_info full[PROCESSES];
    unsigned number = PROCESSES, room = processes ? *count : 0;
    nvmlReturn result = nvmlDeviceGetComputeRunningProcesses_v3(device, &number, full);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned n = 0; n < number && n < room; n++)
        processes[n] = (struct process_info_v1){full[n].pid, full[n].used_memory};
    *count = number;
    return number > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn none(void *device, unsigned *count)
{
    LOOK(device_look, device);
    *count = 0;
    return NVML_SUCCESS;
}

#define NO_PROCESSES(function)                                                                                         \
    API nvmlReturn function(void *device, unsigned *count, void *processes)                                            \
    {                                                                                                                  \
        (void)processes;                                                                                               \
        return none(device, count);                                                                                    \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

API nvmlReturn nvmlDeviceGetRunningProcessDetailList(void *device, struct process_detail_list *list)
{
    struct process_info full[PROCESSES];
    unsigned number = PROCESSES, room = list->processes ? list->entries : 0;
    nvmlReturn result = nvmlDeviceGetComputeRunningProcesses_v3(device, &number, full);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned n = 0; n < number && n < room; n++)
        list->processes[n] = (struct process_detail){full[n].pid, full[n].used_memory, full[n].gpu_instance,
                                                     full[n].compute_instance, 0};
    list->entries = number;
    return number > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates)
{
    LOOK(gpu_look, device);
    unsigned percent = busy(state, handle->gpu) ? 97 : 0;
    *rates = (struct utilization){percent, percent / 2};
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetProcessUtilization(void *device, struct process_sample *samples, unsigned *count,
                                               unsigned long long since)
{
    LOOK(gpu_look, device);
    (void)since;
    unsigned room = samples ? *count : 0, number = 0;
    for (int n = 0; n < PROCESSES; n++) {
        if (!belongs(&state->processes[n], handle))
            continue;
        if (number < room)
            samples[number] = (struct process_sample){.pid = state->processes[n].pid, .sm = 97, .memory = 48};
        number++;
    }
    *count = number;
    return number > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* The media engines of a simulated card never work. */
#define IDLE_ENGINE(function)                                                                                          \
    API nvmlReturn function(void *device, unsigned *percent, unsigned *period_us)                                      \
    {                                                                                                                  \
        LOOK(gpu_look, device);                                                                                        \
        *percent = 0;                                                                                                  \
        *period_us = 167000;                                                                                           \
        return NVML_SUCCESS;                                                                                           \
    }

IDLE_ENGINE(nvmlDeviceGetEncoderUtilization)
IDLE_ENGINE(nvmlDeviceGetDecoderUtilization)
IDLE_ENGINE(nvmlDeviceGetJpgUtilization)
IDLE_ENGINE(nvmlDeviceGetOfaUtilization)

API nvmlReturn nvmlDeviceGetAccountingMode(void *device, int *mode)
{
    LOOK(gpu_look, device);
    *mode = 0;
    return NVML_SUCCESS;
}
