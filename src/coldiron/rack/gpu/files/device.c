/* Handles, and what a GPU or a slice of one is: its names, its place on the bus, its memory. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "access.h"

static struct handle gpu_handles[GPUS], slice_handles[GPUS][INSTANCES][COMPUTES];
static struct handle instance_handles[GPUS][INSTANCES], compute_handles[GPUS][INSTANCES][COMPUTES];

__attribute__((constructor)) static void make_handles(void)
{
    for (int g = 0; g < GPUS; g++) {
        gpu_handles[g] = (struct handle){KIND_GPU, g, -1, -1};
        for (int i = 0; i < INSTANCES; i++) {
            instance_handles[g][i] = (struct handle){KIND_INSTANCE, g, i, -1};
            for (int c = 0; c < COMPUTES; c++) {
                slice_handles[g][i][c] = (struct handle){KIND_SLICE, g, i, c};
                compute_handles[g][i][c] = (struct handle){KIND_COMPUTE, g, i, c};
            }
        }
    }
}

struct handle *handle_of(enum kind kind, int gpu, int instance, int compute)
{
    switch (kind) {
    case KIND_GPU: return &gpu_handles[gpu];
    case KIND_SLICE: return &slice_handles[gpu][instance][compute];
    case KIND_INSTANCE: return &instance_handles[gpu][instance];
    default: return &compute_handles[gpu][instance][compute];
    }
}

static int within(const void *pointer, const void *table, size_t size)
{
    size_t at = (size_t)((const char *)pointer - (const char *)table);
    return at < size && at % sizeof(struct handle) == 0;
}

struct handle *handle_at(void *pointer, enum kind kind)
{
    if (within(pointer, gpu_handles, sizeof gpu_handles) || within(pointer, slice_handles, sizeof slice_handles) ||
        within(pointer, instance_handles, sizeof instance_handles) ||
        within(pointer, compute_handles, sizeof compute_handles)) {
        struct handle *handle = pointer;
        return handle->kind == kind ? handle : NULL;
    }
    return NULL;
}

static nvmlReturn checked(struct handle *handle, struct state *state, struct gpu **gpu)
{
    *gpu = &state->gpus[handle->gpu];
    if (!(*gpu)->used || (*gpu)->hidden)
        return NVML_NOT_FOUND;
    return (*gpu)->lost ? NVML_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn device_look(void *pointer, struct handle **handle, struct state **state, struct gpu **gpu)
{
    if (!initialized())
        return NVML_UNINITIALIZED;
    *handle = handle_at(pointer, KIND_GPU);
    if (!*handle)
        *handle = handle_at(pointer, KIND_SLICE);
    if (!*handle)
        return NVML_INVALID_ARGUMENT;
    *state = state_look();
    if (!*state)
        return NVML_DRIVER_NOT_LOADED;
    nvmlReturn result = checked(*handle, *state, gpu);
    if (result == NVML_SUCCESS && (*handle)->kind == KIND_SLICE &&
        !(*gpu)->instances[(*handle)->instance].computes[(*handle)->compute].used)
        return NVML_INVALID_ARGUMENT;
    return result;
}

nvmlReturn gpu_look(void *pointer, struct handle **handle, struct state **state, struct gpu **gpu)
{
    nvmlReturn result = device_look(pointer, handle, state, gpu);
    if (result == NVML_SUCCESS && (*handle)->kind == KIND_SLICE)
        return NVML_NOT_SUPPORTED;
    return result;
}

nvmlReturn gpu_change(void *pointer, struct handle **handle, struct state **state, struct gpu **gpu)
{
    nvmlReturn result = gpu_look(pointer, handle, state, gpu);
    if (result != NVML_SUCCESS)
        return result;
    *state = state_change(&result);
    if (!*state)
        return result;
    result = checked(*handle, *state, gpu);
    if (result != NVML_SUCCESS)
        state_change_end(0);
    return result;
}

API nvmlReturn nvmlDeviceGetCount_v2(unsigned *count)
{
    int gpus[GPUS];
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    *count = (unsigned)visible(state, gpus);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

static nvmlReturn give(const struct state *state, int gpu, void **device)
{
    if (state->gpus[gpu].lost)
        return NVML_GPU_IS_LOST;
    *device = handle_of(KIND_GPU, gpu, -1, -1);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    int gpus[GPUS];
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    if (index >= (unsigned)visible(state, gpus))
        return NVML_INVALID_ARGUMENT;
    return give(state, gpus[index], device);
}

API nvmlReturn nvmlDeviceGetHandleByIndex(unsigned index, void **device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* FNV-1a: slices have names of their own that stay the same when the same layout is made again. */
static unsigned long long mixed(const char *text, int instance, int compute)
{
    unsigned long long hash = 14695981039346656037ull;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    hash = (hash ^ (unsigned)instance) * 1099511628211ull;
    return (hash ^ (unsigned)compute) * 1099511628211ull;
}

void slice_uuid(const struct gpu *gpu, int instance, int compute, char *text)
{
    unsigned long long hash = mixed(gpu->uuid, instance + 1, compute);
    snprintf(text, TEXT, "MIG-51300000-%04llx-5%03llx-8%03llx-%08llx%04x", hash >> 48, hash >> 36 & 0xfff,
             hash >> 24 & 0xfff, hash & 0xffffffff, (unsigned)((instance + 1) * 16 + compute));
}

API nvmlReturn nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    LOOK(device_look, device);
    char text[TEXT];
    if (handle->kind == KIND_GPU)
        return copy_text(uuid, size, gpu->uuid);
    slice_uuid(gpu, handle->instance, handle->compute, text);
    return copy_text(uuid, size, text);
}

API nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    int gpus[GPUS];
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    int count = visible(state, gpus);
    for (int n = 0; n < count; n++) {
        const struct gpu *gpu = &state->gpus[gpus[n]];
        if (!strcmp(gpu->uuid, uuid))
            return give(state, gpus[n], device);
        for (int i = 0; i < INSTANCES; i++)
            for (int c = 0; c < COMPUTES; c++) {
                char text[TEXT];
                slice_uuid(gpu, i, c, text);
                if (gpu->instances[i].used && gpu->instances[i].computes[c].used && !strcmp(text, uuid)) {
                    *device = handle_of(KIND_SLICE, gpus[n], i, c);
                    return NVML_SUCCESS;
                }
            }
    }
    return NVML_NOT_FOUND;
}

API nvmlReturn nvmlDeviceGetHandleBySerial(const char *serial, void **device)
{
    int gpus[GPUS];
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    int count = visible(state, gpus);
    for (int n = 0; n < count; n++)
        if (!strcmp(state->gpus[gpus[n]].serial, serial))
            return give(state, gpus[n], device);
    return NVML_NOT_FOUND;
}

API nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    int gpus[GPUS];
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    unsigned domain, bus;
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || domain != 0)
        return NVML_INVALID_ARGUMENT;
    int count = visible(state, gpus);
    for (int n = 0; n < count; n++)
        if (state->gpus[gpus[n]].pci_bus == bus)
            return give(state, gpus[n], device);
    return NVML_NOT_FOUND;
}

API nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *id, void **device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

static void fill_pci(const struct state *state, const struct gpu *gpu, struct pci_info *info)
{
    memset(info, 0, sizeof *info);
    info->bus = gpu->pci_bus;
    info->pci_device_id = state->card.pci_device_id;
    info->pci_subsystem_id = state->card.pci_subsystem_id;
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", gpu->pci_bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", gpu->pci_bus);
}

API nvmlReturn nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    LOOK(gpu_look, device);
    fill_pci(state, gpu, info);
    return NVML_SUCCESS;
}

/* The older layouts end before the long address. */
static nvmlReturn old_pci(void *device, void *info)
{
    struct pci_info full;
    nvmlReturn result = nvmlDeviceGetPciInfo_v3(device, &full);
    if (result == NVML_SUCCESS)
        memcpy(info, &full, offsetof(struct pci_info, bus_id));
    return result;
}

API nvmlReturn nvmlDeviceGetPciInfo_v2(void *device, void *info)
{
    return old_pci(device, info);
}

API nvmlReturn nvmlDeviceGetPciInfo(void *device, void *info)
{
    return old_pci(device, info);
}

API nvmlReturn nvmlDeviceGetPciInfoExt(void *device, struct pci_info_ext *info)
{
    struct pci_info plain;
    nvmlReturn result = nvmlDeviceGetPciInfo_v3(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    *info = (struct pci_info_ext){.version = info->version, .bus = plain.bus, .pci_device_id = plain.pci_device_id,
                                  .pci_subsystem_id = plain.pci_subsystem_id, .base_class = 3, .sub_class = 2};
    memcpy(info->bus_id, plain.bus_id, sizeof info->bus_id);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    LOOK(device_look, device);
    char text[2 * TEXT + 8];
    if (handle->kind == KIND_GPU)
        return copy_text(name, size, state->card.name);
    const struct profile *profile = &state->profiles[gpu->instances[handle->instance].profile];
    snprintf(text, sizeof text, "%s MIG %s", state->card.name, profile->name);
    return copy_text(name, size, text);
}

API nvmlReturn nvmlDeviceGetIndex(void *device, unsigned *index)
{
    int gpus[GPUS];
    LOOK(device_look, device);
    int count = visible(state, gpus);
    for (int n = 0; n < count; n++)
        if (gpus[n] == handle->gpu) {
            *index = (unsigned)n;
            return NVML_SUCCESS;
        }
    return NVML_NOT_FOUND;
}

GPU_TEXT(nvmlDeviceGetSerial, gpu->serial)
GPU_TEXT(nvmlDeviceGetVbiosVersion, state->card.vbios)
GPU_TEXT(nvmlDeviceGetBoardPartNumber, state->card.part_number)
GPU_TEXT(nvmlDeviceGetInforomImageVersion, "SIMULATED")
DEVICE_WORD(nvmlDeviceGetMinorNumber, unsigned, handle->gpu)
DEVICE_WORD(nvmlDeviceGetBoardId, unsigned, gpu->pci_bus << 8)
DEVICE_WORD(nvmlDeviceGetModuleId, unsigned, gpu->module_id)
DEVICE_WORD(nvmlDeviceGetBrand, int, state->card.brand)
DEVICE_WORD(nvmlDeviceGetArchitecture, unsigned, state->card.architecture)
DEVICE_WORD(nvmlDeviceGetNumGpuCores, unsigned, state->card.cores)
DEVICE_WORD(nvmlDeviceGetMultiGpuBoard, unsigned, 0)
DEVICE_WORD(nvmlDeviceGetVirtualizationMode, int, 0)
DEVICE_WORD(nvmlDeviceGetDisplayMode, int, 0)
DEVICE_WORD(nvmlDeviceGetDisplayActive, int, 0)
DEVICE_WORD(nvmlDeviceGetNumaNodeId, unsigned, gpu->numa)
DEVICE_WORD(nvmlDeviceGetBusType, unsigned, 2)
DEVICE_WORD(nvmlDeviceGetMemoryBusWidth, unsigned, 5120)

API nvmlReturn nvmlDeviceGetInforomVersion(void *device, unsigned object, char *version, unsigned size)
{
    LOOK(gpu_look, device);
    (void)object;
    return copy_text(version, size, "SIM");
}

API nvmlReturn nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    LOOK(device_look, device);
    *major = (int)state->card.capability_major;
    *minor = (int)state->card.capability_minor;
    return NVML_SUCCESS;
}

static unsigned long long total_mib(const struct state *state, const struct gpu *gpu, const struct handle *handle)
{
    if (handle->kind == KIND_GPU)
        return state->card.memory_mib;
    return state->profiles[gpu->instances[handle->instance].profile].memory_mib;
}

API nvmlReturn nvmlDeviceGetMemoryInfo(void *device, struct memory_info *info)
{
    LOOK(device_look, device);
    info->total = total_mib(state, gpu, handle) << 20;
    info->used = used_mib(state, handle) << 20;
    info->free = info->total > info->used ? info->total - info->used : 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_info_v2 *info)
{
    struct memory_info plain;
    nvmlReturn result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    info->total = plain.total;
    info->reserved = 0;
    info->free = plain.free;
    info->used = plain.used;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetBAR1MemoryInfo(void *device, struct bar1_info *info)
{
    LOOK(device_look, device);
    *info = (struct bar1_info){131072ull << 20, 131071ull << 20, 1ull << 20};
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceOnSameBoard(void *one, void *other, int *same)
{
    if (!handle_at(one, KIND_GPU) || !handle_at(other, KIND_GPU))
        return NVML_INVALID_ARGUMENT;
    *same = one == other;
    return NVML_SUCCESS;
}
