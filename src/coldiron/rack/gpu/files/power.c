/* Power, clocks, heat, persistence: what is read off a card and what an administrator sets on it. */
#include <string.h>

#include "access.h"

enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, CLOCK_VIDEO = 3 };
enum { THRESHOLD_SHUTDOWN = 0, THRESHOLD_SLOWDOWN = 1, THRESHOLD_MEMORY = 2, THRESHOLD_GPU = 3 };
enum { REASON_IDLE = 1, REASON_APPLICATION = 2, REASON_POWER_CAP = 4 };
/* What a card under work draws, as a share of what it may at most; a lower limit holds it down to that. */
enum { WORK_PERCENT = 90 };

static unsigned wanted_mw(const struct state *state)
{
    return state->card.power_max_mw / 100 * WORK_PERCENT;
}

static unsigned drawn_mw(const struct state *state, const struct handle *handle)
{
    const struct gpu *gpu = &state->gpus[handle->gpu];
    if (!busy(state, handle->gpu))
        return state->card.power_idle_mw;
    return wanted_mw(state) < gpu->power_limit_mw ? wanted_mw(state) : gpu->power_limit_mw;
}

static unsigned long long reasons(const struct state *state, const struct handle *handle)
{
    const struct gpu *gpu = &state->gpus[handle->gpu];
    if (!busy(state, handle->gpu))
        return gpu->slow ? gpu->slow : REASON_IDLE;
    return gpu->slow | (wanted_mw(state) > gpu->power_limit_mw ? REASON_POWER_CAP : 0);
}

/* A card that is too hot is held at half its clock. */
static unsigned clock_mhz(const struct state *state, const struct handle *handle, int which)
{
    const struct gpu *gpu = &state->gpus[handle->gpu];
    if (which == CLOCK_MEMORY)
        return gpu->clock_memory_mhz;
    unsigned clock = busy(state, handle->gpu) ? gpu->clock_sm_mhz : state->card.clock_sm_idle_mhz;
    if (gpu->locked_max_mhz && clock > gpu->locked_max_mhz)
        clock = gpu->locked_max_mhz;
    if (gpu->locked_min_mhz && clock < gpu->locked_min_mhz)
        clock = gpu->locked_min_mhz;
    return gpu->slow ? clock / 2 : clock;
}

GPU_WORD(nvmlDeviceGetPowerManagementLimit, unsigned, gpu->power_limit_mw)
GPU_WORD(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->power_limit_mw)
GPU_WORD(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, state->card.power_default_mw)
GPU_WORD(nvmlDeviceGetPowerUsage, unsigned, drawn_mw(state, handle))
GPU_WORD(nvmlDeviceGetPowerManagementMode, int, 1)
GPU_WORD(nvmlDeviceGetPersistenceMode, int, gpu->persistence)
GPU_WORD(nvmlDeviceGetComputeMode, int, gpu->compute_mode)
GPU_WORD(nvmlDeviceGetPerformanceState, int, busy(state, handle->gpu) || gpu->clock_sm_mhz ? 0 : 8)
GPU_WORD(nvmlDeviceGetPowerState, int, 0)
GPU_WORD(nvmlDeviceGetPowerSource, unsigned, 0)
GPU_WORD(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, reasons(state, handle))
GPU_WORD(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, reasons(state, handle))
GPU_WORD(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, 0x1ff)
GPU_WORD(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 0x1ff)
GPU_WORD(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 1000000000ull)

API nvmlReturn nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most)
{
    LOOK(gpu_look, device);
    *least = state->card.power_min_mw;
    *most = state->card.power_max_mw;
    return NVML_SUCCESS;
}

static nvmlReturn set_limit(void *device, unsigned milliwatts)
{
    LOOK(gpu_change, device);
    if (milliwatts < state->card.power_min_mw || milliwatts > state->card.power_max_mw) {
        state_change_end(0);
        return NVML_INVALID_ARGUMENT;
    }
    gpu->power_limit_mw = milliwatts;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceSetPowerManagementLimit(void *device, unsigned milliwatts)
{
    return set_limit(device, milliwatts);
}

API nvmlReturn nvmlDeviceSetPowerManagementLimit_v2(void *device, struct power_value *value)
{
    return set_limit(device, value->milliwatts);
}

API nvmlReturn nvmlDeviceSetPersistenceMode(void *device, int mode)
{
    LOOK(gpu_change, device);
    gpu->persistence = mode != 0;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceSetComputeMode(void *device, unsigned mode)
{
    LOOK(gpu_change, device);
    if (mode > 3 || mode == 1) {
        state_change_end(0);
        return NVML_INVALID_ARGUMENT;
    }
    gpu->compute_mode = mode;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    LOOK(device_look, device);
    *mhz = clock_mhz(state, handle, which);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *mhz)
{
    LOOK(device_look, device);
    *mhz = which == CLOCK_MEMORY ? state->card.clock_memory_mhz : state->card.clock_sm_max_mhz;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetMaxCustomerBoostClock(void *device, int which, unsigned *mhz)
{
    return nvmlDeviceGetMaxClockInfo(device, which, mhz);
}

API nvmlReturn nvmlDeviceGetApplicationsClock(void *device, int which, unsigned *mhz)
{
    LOOK(gpu_look, device);
    *mhz = which == CLOCK_MEMORY ? gpu->clock_memory_mhz : gpu->clock_sm_mhz;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetDefaultApplicationsClock(void *device, int which, unsigned *mhz)
{
    return nvmlDeviceGetMaxClockInfo(device, which, mhz);
}

API nvmlReturn nvmlDeviceGetClock(void *device, int which, int what, unsigned *mhz)
{
    return what == 0 ? nvmlDeviceGetClockInfo(device, which, mhz) : nvmlDeviceGetApplicationsClock(device, which, mhz);
}

static int sm_clock(const struct state *state, unsigned mhz)
{
    return mhz >= state->card.clock_sm_idle_mhz && mhz <= state->card.clock_sm_max_mhz;
}

API nvmlReturn nvmlDeviceSetApplicationsClocks(void *device, unsigned memory, unsigned sm)
{
    LOOK(gpu_change, device);
    if (memory != state->card.clock_memory_mhz || !sm_clock(state, sm)) {
        state_change_end(0);
        return NVML_INVALID_ARGUMENT;
    }
    gpu->clock_memory_mhz = memory;
    gpu->clock_sm_mhz = sm;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceResetApplicationsClocks(void *device)
{
    LOOK(gpu_change, device);
    gpu->clock_memory_mhz = state->card.clock_memory_mhz;
    gpu->clock_sm_mhz = state->card.clock_sm_max_mhz;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most)
{
    LOOK(gpu_change, device);
    if (least > most || most > state->card.clock_sm_max_mhz) {
        state_change_end(0);
        return NVML_INVALID_ARGUMENT;
    }
    gpu->locked_min_mhz = least;
    gpu->locked_max_mhz = most;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceResetGpuLockedClocks(void *device)
{
    LOOK(gpu_change, device);
    gpu->locked_min_mhz = gpu->locked_max_mhz = 0;
    return state_change_end(1);
}

/* As NVML has it: without room for the answer, its length. */
static nvmlReturn give_clocks(const unsigned *clocks, unsigned number, unsigned *count, unsigned *to)
{
    if (!to || *count < number) {
        *count = number;
        return NVML_INSUFFICIENT_SIZE;
    }
    memcpy(to, clocks, number * sizeof *clocks);
    *count = number;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *clocks)
{
    LOOK(gpu_look, device);
    return give_clocks(&state->card.clock_memory_mhz, 1, count, clocks);
}

API nvmlReturn nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *clocks)
{
    LOOK(gpu_look, device);
    if (memory != state->card.clock_memory_mhz)
        return NVML_NOT_FOUND;
    unsigned table[256], number = 0;
    for (unsigned mhz = state->card.clock_sm_max_mhz; mhz >= state->card.clock_sm_idle_mhz && number < 256; mhz -= 15)
        table[number++] = mhz;
    return give_clocks(table, number, count, clocks);
}

API nvmlReturn nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    LOOK(gpu_look, device);
    if (sensor != 0)
        return NVML_INVALID_ARGUMENT;
    *celsius = gpu->temperature_celsius + (busy(state, handle->gpu) ? 20 : 0);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetTemperatureV(void *device, struct temperature_v1 *value)
{
    unsigned celsius;
    nvmlReturn result = nvmlDeviceGetTemperature(device, (int)value->sensor, &celsius);
    if (result == NVML_SUCCESS)
        value->celsius = (int)celsius;
    return result;
}

API nvmlReturn nvmlDeviceGetTemperatureThreshold(void *device, int which, unsigned *celsius)
{
    LOOK(gpu_look, device);
    switch (which) {
    case THRESHOLD_SHUTDOWN: *celsius = state->card.shutdown_celsius; return NVML_SUCCESS;
    case THRESHOLD_SLOWDOWN: *celsius = state->card.slowdown_celsius; return NVML_SUCCESS;
    case THRESHOLD_MEMORY: *celsius = state->card.shutdown_celsius + 3; return NVML_SUCCESS;
    case THRESHOLD_GPU: *celsius = state->card.slowdown_celsius; return NVML_SUCCESS;
    default: return NVML_NOT_SUPPORTED;
    }
}

API nvmlReturn nvmlDeviceGetMarginTemperature(void *device, struct margin_temperature *value)
{
    unsigned celsius;
    nvmlReturn result = nvmlDeviceGetTemperature(device, 0, &celsius);
    if (result != NVML_SUCCESS)
        return result;
    value->celsius = (int)state_look()->card.slowdown_celsius - (int)celsius;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetThermalSettings(void *device, unsigned sensor, struct thermal_settings *settings)
{
    unsigned celsius;
    nvmlReturn result = nvmlDeviceGetTemperature(device, 0, &celsius);
    (void)sensor;
    if (result != NVML_SUCCESS)
        return result;
    memset(settings, 0, sizeof *settings);
    settings->count = 1;
    settings->sensors[0].current = (int)celsius;
    settings->sensors[0].target = 1;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetViolationStatus(void *device, int policy, struct violation_time *time)
{
    LOOK(gpu_look, device);
    (void)policy;
    *time = (struct violation_time){0};
    return NVML_SUCCESS;
}
