/* MIG: a GPU's instances and what computes in them, placed as the catalog's profiles allow. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "access.h"

enum { WIDEST_COMPUTE = 5 };
/* The slices of a compute instance, by the number of its profile; NVML counts the ways to ask for them as it does. */
static const unsigned COMPUTE_SLICES[WIDEST_COMPUTE] = {1, 2, 3, 4, 7};

static const struct profile *profile_of_kind(const struct state *state, unsigned kind)
{
    for (int n = 0; n < PROFILES; n++)
        if (state->profiles[n].used && state->profiles[n].kind == kind)
            return &state->profiles[n];
    return NULL;
}

static int profile_index(const struct state *state, unsigned id)
{
    for (int n = 0; n < PROFILES; n++)
        if (state->profiles[n].used && state->profiles[n].id == id)
            return n;
    return -1;
}

static const struct profile *profile_of(const struct state *state, const struct instance *instance)
{
    return &state->profiles[instance->profile];
}

static unsigned span(unsigned start, unsigned size)
{
    return ((1u << size) - 1) << start;
}

/* Where an instance of a profile can begin now: the highest free place, as the driver takes it; -1 for none. */
static int place(const struct state *state, const struct gpu *gpu, unsigned index)
{
    const struct profile *wanted = &state->profiles[index];
    unsigned taken = 0, slices = 0, same = 0;
    for (int n = 0; n < INSTANCES; n++) {
        if (!gpu->instances[n].used)
            continue;
        const struct profile *other = profile_of(state, &gpu->instances[n]);
        taken |= span(gpu->instances[n].start, other->size);
        slices += other->slices;
        same += gpu->instances[n].profile == index;
    }
    if (same >= wanted->count || slices + wanted->slices > state->card.mig_slices)
        return -1;
    for (int start = SLICES - 1; start >= 0; start--)
        if ((wanted->starts >> start & 1) && !(taken & span((unsigned)start, wanted->size)))
            return start;
    return -1;
}

static int free_row(const struct gpu *gpu)
{
    for (int n = 0; n < INSTANCES; n++)
        if (!gpu->instances[n].used)
            return n;
    return -1;
}

static unsigned room_for(const struct state *state, const struct gpu *gpu, unsigned index)
{
    struct gpu tried = *gpu;
    unsigned count = 0;
    for (;;) {
        int start = place(state, &tried, index), row = free_row(&tried);
        if (start < 0 || row < 0)
            return count;
        tried.instances[row] = (struct instance){.used = 1, .profile = index, .start = (unsigned)start};
        count++;
    }
}

API nvmlReturn nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    LOOK(gpu_look, device);
    if (!state->card.mig)
        return NVML_NOT_SUPPORTED;
    *current = gpu->mig_mode;
    *pending = gpu->mig_pending;
    return NVML_SUCCESS;
}

/* A GPU that is in use keeps its mode: the new one is pending, and the second answer says why. */
API nvmlReturn nvmlDeviceSetMigMode(void *device, unsigned mode, nvmlReturn *activation)
{
    LOOK(gpu_change, device);
    *activation = NVML_SUCCESS;
    if (!state->card.mig || mode > 1) {
        state_change_end(0);
        return state->card.mig ? NVML_INVALID_ARGUMENT : NVML_NOT_SUPPORTED;
    }
    int in_use = busy(state, handle->gpu);
    for (int n = 0; n < INSTANCES && !mode; n++)
        in_use |= gpu->instances[n].used;
    gpu->mig_pending = mode;
    if (in_use && gpu->mig_mode != mode)
        *activation = NVML_IN_USE;
    else
        gpu->mig_mode = mode;
    capabilities_write(state);
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    LOOK(gpu_look, device);
    *count = state->card.mig ? state->card.mig_slices : 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceIsMigDeviceHandle(void *device, unsigned *is)
{
    LOOK(device_look, device);
    *is = handle->kind == KIND_SLICE;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **slice)
{
    LOOK(gpu_look, device);
    for (int i = 0; i < INSTANCES; i++)
        for (int c = 0; c < COMPUTES; c++)
            if (gpu->instances[i].used && gpu->instances[i].computes[c].used && index-- == 0) {
                *slice = handle_of(KIND_SLICE, handle->gpu, i, c);
                return NVML_SUCCESS;
            }
    return NVML_NOT_FOUND;
}

API nvmlReturn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **device)
{
    LOOK(device_look, slice);
    if (handle->kind != KIND_SLICE)
        return NVML_INVALID_ARGUMENT;
    *device = handle_of(KIND_GPU, handle->gpu, -1, -1);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetGpuInstanceId(void *device, unsigned *id)
{
    LOOK(device_look, device);
    if (handle->kind != KIND_SLICE)
        return NVML_NOT_SUPPORTED;
    *id = (unsigned)handle->instance + 1;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetComputeInstanceId(void *device, unsigned *id)
{
    LOOK(device_look, device);
    if (handle->kind != KIND_SLICE)
        return NVML_NOT_SUPPORTED;
    *id = (unsigned)handle->compute;
    return NVML_SUCCESS;
}

/* The share of a GPU instance's processors that so many of its slices have. */
static unsigned processors_of(const struct profile *profile, unsigned slices)
{
    return profile->multiprocessors * slices / profile->slices;
}

API nvmlReturn nvmlDeviceGetAttributes_v2(void *device, struct attributes *attributes)
{
    LOOK(device_look, device);
    if (handle->kind != KIND_SLICE)
        return NVML_NOT_SUPPORTED;
    const struct instance *instance = &gpu->instances[handle->instance];
    const struct profile *profile = profile_of(state, instance);
    unsigned slices = COMPUTE_SLICES[instance->computes[handle->compute].profile];
    *attributes = (struct attributes){.multiprocessors = processors_of(profile, slices),
                                      .copy_engines = profile->copy_engines, .decoders = profile->decoders,
                                      .jpeg = profile->jpeg, .ofa = profile->ofa, .gpu_slices = profile->slices,
                                      .compute_slices = slices, .memory_mib = profile->memory_mib};
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetAttributes(void *device, struct attributes *attributes)
{
    return nvmlDeviceGetAttributes_v2(device, attributes);
}

enum { PROFILE_KINDS = 16 };

static nvmlReturn find_profile(const struct state *state, unsigned kind, const struct profile **profile)
{
    if (kind >= PROFILE_KINDS)
        return NVML_INVALID_ARGUMENT;
    *profile = state->card.mig ? profile_of_kind(state, kind) : NULL;
    return *profile ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

API nvmlReturn nvmlDeviceGetGpuInstanceProfileInfo(void *device, unsigned kind, struct gpu_profile *info)
{
    const struct profile *p;
    LOOK(gpu_look, device);
    result = find_profile(state, kind, &p);
    if (result == NVML_SUCCESS)
        *info = (struct gpu_profile){.id = p->id, .slices = p->slices, .instances = p->count,
                                     .multiprocessors = p->multiprocessors, .copy_engines = p->copy_engines,
                                     .decoders = p->decoders, .jpeg = p->jpeg, .ofa = p->ofa,
                                     .memory_mib = p->memory_mib};
    return result;
}

API nvmlReturn nvmlDeviceGetGpuInstanceProfileInfoV(void *device, unsigned kind, void *info)
{
    const struct profile *p;
    LOOK(gpu_look, device);
    result = find_profile(state, kind, &p);
    if (result != NVML_SUCCESS)
        return result;
    unsigned version = *(unsigned *)info;
    if (VERSION_OF(version) == 3) {
        struct gpu_profile_v3 *to = info;
        *to = (struct gpu_profile_v3){version, p->id, p->slices, p->count, p->multiprocessors, p->copy_engines,
                                      p->decoders, 0, p->jpeg, p->ofa, p->memory_mib, "", 0};
        snprintf(to->name, sizeof to->name, "MIG %.80s", p->name);
        return NVML_SUCCESS;
    }
    if (VERSION_OF(version) != 2)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    struct gpu_profile_v2 *to = info;
    *to = (struct gpu_profile_v2){version, p->id, 0, p->slices, p->count, p->multiprocessors, p->copy_engines,
                                  p->decoders, 0, p->jpeg, p->ofa, p->memory_mib, ""};
    snprintf(to->name, sizeof to->name, "MIG %.80s", p->name);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetGpuInstanceRemainingCapacity(void *device, unsigned id, unsigned *count)
{
    LOOK(gpu_look, device);
    int index = profile_index(state, id);
    if (index < 0)
        return NVML_INVALID_ARGUMENT;
    *count = room_for(state, gpu, (unsigned)index);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, unsigned id, struct placement *places,
                                                             unsigned *count)
{
    LOOK(gpu_look, device);
    int index = profile_index(state, id);
    if (index < 0)
        return NVML_INVALID_ARGUMENT;
    unsigned room = places ? *count : 0, number = 0;
    for (unsigned start = 0; start < SLICES; start++) {
        if (!(state->profiles[index].starts >> start & 1))
            continue;
        if (number < room)
            places[number] = (struct placement){start, state->profiles[index].size};
        number++;
    }
    *count = number;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetGpuInstancePossiblePlacements(void *device, unsigned id, struct placement *places,
                                                          unsigned *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, places, count);
}

static int is_free(const struct state *state, const struct gpu *gpu, unsigned start, unsigned size)
{
    for (int n = 0; n < INSTANCES; n++)
        if (gpu->instances[n].used &&
            (span(gpu->instances[n].start, profile_of(state, &gpu->instances[n])->size) & span(start, size)))
            return 0;
    return 1;
}

static nvmlReturn make_instance(void *device, unsigned id, const struct placement *wish, void **made)
{
    LOOK(gpu_change, device);
    int index = profile_index(state, id);
    if (index < 0 || !gpu->mig_mode) {
        state_change_end(0);
        return index < 0 ? NVML_INVALID_ARGUMENT : NVML_NOT_SUPPORTED;
    }
    int start = place(state, gpu, (unsigned)index), row = free_row(gpu);
    if (start >= 0 && wish) {
        const struct profile *profile = &state->profiles[index];
        int fits = wish->start < SLICES && (profile->starts >> wish->start & 1);
        start = fits && is_free(state, gpu, wish->start, profile->size) ? (int)wish->start : -1;
    }
    if (start < 0 || row < 0) {
        state_change_end(0);
        return NVML_INSUFFICIENT_RESOURCES;
    }
    gpu->instances[row] = (struct instance){.used = 1, .profile = (unsigned)index, .start = (unsigned)start};
    *made = handle_of(KIND_INSTANCE, handle->gpu, row, -1);
    capabilities_write(state);
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceCreateGpuInstance(void *device, unsigned id, void **made)
{
    return make_instance(device, id, NULL, made);
}

API nvmlReturn nvmlDeviceCreateGpuInstanceWithPlacement(void *device, unsigned id, const struct placement *wish,
                                                        void **made)
{
    return make_instance(device, id, wish, made);
}

API nvmlReturn nvmlDeviceGetGpuInstances(void *device, unsigned id, void **instances, unsigned *count)
{
    LOOK(gpu_look, device);
    int index = profile_index(state, id);
    if (index < 0)
        return NVML_INVALID_ARGUMENT;
    unsigned number = 0;
    for (int n = 0; n < INSTANCES; n++)
        if (gpu->instances[n].used && gpu->instances[n].profile == (unsigned)index)
            instances[number++] = handle_of(KIND_INSTANCE, handle->gpu, n, -1);
    *count = number;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetGpuInstanceById(void *device, unsigned id, void **instance)
{
    LOOK(gpu_look, device);
    if (id < 1 || id > INSTANCES || !gpu->instances[id - 1].used)
        return NVML_NOT_FOUND;
    *instance = handle_of(KIND_INSTANCE, handle->gpu, (int)id - 1, -1);
    return NVML_SUCCESS;
}

/* The row of an instance's handle in the state; a change of it is as root and ended by state_change_end. */
static nvmlReturn instance_row(void *pointer, enum kind kind, int change, struct handle **handle, struct state **state,
                               struct instance **instance)
{
    nvmlReturn result = NVML_DRIVER_NOT_LOADED;
    *handle = handle_at(pointer, kind);
    if (!*handle)
        return NVML_INVALID_ARGUMENT;
    *state = change ? state_change(&result) : state_look();
    if (!*state)
        return result;
    *instance = &(*state)->gpus[(*handle)->gpu].instances[(*handle)->instance];
    if ((*instance)->used && (kind == KIND_INSTANCE || (*instance)->computes[(*handle)->compute].used))
        return NVML_SUCCESS;
    if (change)
        state_change_end(0);
    return NVML_NOT_FOUND;
}

#define ROW(kind, change, pointer)                                                                                     \
    struct handle *handle;                                                                                             \
    struct state *state;                                                                                               \
    struct instance *instance;                                                                                         \
    nvmlReturn result = instance_row(pointer, kind, change, &handle, &state, &instance);                               \
    if (result != NVML_SUCCESS)                                                                                        \
        return result

static int instance_busy(const struct state *state, const struct handle *handle)
{
    for (int n = 0; n < PROCESSES; n++) {
        const struct process *one = &state->processes[n];
        if (one->used && one->gpu == (unsigned)handle->gpu && one->instance == handle->instance + 1 &&
            (handle->kind == KIND_INSTANCE || one->compute == handle->compute))
            return 1;
    }
    return 0;
}

API nvmlReturn nvmlGpuInstanceDestroy(void *pointer)
{
    ROW(KIND_INSTANCE, 1, pointer);
    for (int n = 0; n < COMPUTES; n++)
        if (instance->computes[n].used) {
            state_change_end(0);
            return NVML_IN_USE;
        }
    *instance = (struct instance){0};
    capabilities_write(state);
    return state_change_end(1);
}

API nvmlReturn nvmlGpuInstanceGetInfo(void *pointer, struct gpu_instance_info *info)
{
    ROW(KIND_INSTANCE, 0, pointer);
    const struct profile *profile = profile_of(state, instance);
    *info = (struct gpu_instance_info){handle_of(KIND_GPU, handle->gpu, -1, -1), (unsigned)handle->instance + 1,
                                       profile->id, {instance->start, profile->size}};
    return NVML_SUCCESS;
}

static nvmlReturn fill_compute(const struct state *state, const struct instance *instance, unsigned kind,
                               struct compute_profile *info, char *name, size_t size)
{
    const struct profile *profile = profile_of(state, instance);
    if (kind >= WIDEST_COMPUTE || COMPUTE_SLICES[kind] > profile->slices)
        return NVML_NOT_SUPPORTED;
    unsigned slices = COMPUTE_SLICES[kind];
    *info = (struct compute_profile){.id = kind, .slices = slices, .instances = profile->slices / slices,
                                     .multiprocessors = processors_of(profile, slices),
                                     .copy_engines = profile->copy_engines, .decoders = profile->decoders,
                                     .jpeg = profile->jpeg, .ofa = profile->ofa};
    if (name && slices == profile->slices)
        snprintf(name, size, "MIG %.80s", profile->name);
    else if (name)
        snprintf(name, size, "MIG %uc.%.80s", slices, profile->name);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlGpuInstanceGetComputeInstanceProfileInfo(void *pointer, unsigned kind, unsigned engines,
                                                            struct compute_profile *info)
{
    ROW(KIND_INSTANCE, 0, pointer);
    (void)engines;
    return fill_compute(state, instance, kind, info, NULL, 0);
}

API nvmlReturn nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *pointer, unsigned kind, unsigned engines, void *info)
{
    ROW(KIND_INSTANCE, 0, pointer);
    (void)engines;
    unsigned version = *(unsigned *)info;
    if (VERSION_OF(version) != 2 && VERSION_OF(version) != 3)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    struct compute_profile_v3 full = {.version = version};
    result = fill_compute(state, instance, kind, &full.profile, full.name, sizeof full.name);
    if (result == NVML_SUCCESS)
        memcpy(info, &full, VERSION_OF(version) == 3 ? sizeof full : sizeof(struct compute_profile_v2));
    return result;
}

/* The slices of an instance that compute instances have, a bit each. */
static unsigned computing(const struct instance *instance)
{
    unsigned taken = 0;
    for (int n = 0; n < COMPUTES; n++)
        if (instance->computes[n].used)
            taken |= span(instance->computes[n].start, COMPUTE_SLICES[instance->computes[n].profile]);
    return taken;
}

static int place_compute(const struct state *state, const struct instance *instance, unsigned slices)
{
    unsigned taken = computing(instance);
    for (unsigned start = 0; start + slices <= profile_of(state, instance)->slices; start++)
        if (!(taken & span(start, slices)))
            return (int)start;
    return -1;
}

API nvmlReturn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(void *pointer, unsigned id, unsigned *count)
{
    ROW(KIND_INSTANCE, 0, pointer);
    if (id >= WIDEST_COMPUTE)
        return NVML_INVALID_ARGUMENT;
    unsigned left = profile_of(state, instance)->slices - (unsigned)__builtin_popcount(computing(instance));
    *count = left / COMPUTE_SLICES[id];
    return NVML_SUCCESS;
}

API nvmlReturn nvmlGpuInstanceGetComputeInstancePossiblePlacements(void *pointer, unsigned id, struct placement *places,
                                                                   unsigned *count)
{
    ROW(KIND_INSTANCE, 0, pointer);
    if (id >= WIDEST_COMPUTE)
        return NVML_INVALID_ARGUMENT;
    unsigned room = places ? *count : 0, number = 0, slices = COMPUTE_SLICES[id];
    for (unsigned start = 0; start + slices <= profile_of(state, instance)->slices; start += slices) {
        if (number < room)
            places[number] = (struct placement){start, slices};
        number++;
    }
    *count = number;
    return NVML_SUCCESS;
}

static nvmlReturn make_compute(void *pointer, unsigned id, const struct placement *wish, void **made)
{
    ROW(KIND_INSTANCE, 1, pointer);
    int row = 0, start = -1;
    if (id < WIDEST_COMPUTE)
        start = place_compute(state, instance, COMPUTE_SLICES[id]);
    if (start >= 0 && wish)
        start = computing(instance) & span(wish->start, COMPUTE_SLICES[id]) ? -1 : (int)wish->start;
    while (row < COMPUTES && instance->computes[row].used)
        row++;
    if (start < 0 || row == COMPUTES) {
        state_change_end(0);
        return id < WIDEST_COMPUTE ? NVML_INSUFFICIENT_RESOURCES : NVML_INVALID_ARGUMENT;
    }
    instance->computes[row] = (struct compute){.used = 1, .profile = id, .start = (unsigned)start};
    *made = handle_of(KIND_COMPUTE, handle->gpu, handle->instance, row);
    capabilities_write(state);
    return state_change_end(1);
}

API nvmlReturn nvmlGpuInstanceCreateComputeInstance(void *pointer, unsigned id, void **made)
{
    return make_compute(pointer, id, NULL, made);
}

API nvmlReturn nvmlGpuInstanceCreateComputeInstanceWithPlacement(void *pointer, unsigned id,
                                                                 const struct placement *wish, void **made)
{
    return make_compute(pointer, id, wish, made);
}

API nvmlReturn nvmlGpuInstanceGetComputeInstances(void *pointer, unsigned id, void **computes, unsigned *count)
{
    ROW(KIND_INSTANCE, 0, pointer);
    unsigned number = 0;
    for (int n = 0; n < COMPUTES; n++)
        if (instance->computes[n].used && instance->computes[n].profile == id)
            computes[number++] = handle_of(KIND_COMPUTE, handle->gpu, handle->instance, n);
    *count = number;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlGpuInstanceGetComputeInstanceById(void *pointer, unsigned id, void **compute)
{
    ROW(KIND_INSTANCE, 0, pointer);
    if (id >= COMPUTES || !instance->computes[id].used)
        return NVML_NOT_FOUND;
    *compute = handle_of(KIND_COMPUTE, handle->gpu, handle->instance, (int)id);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlComputeInstanceGetInfo_v2(void *pointer, struct compute_instance_info *info)
{
    ROW(KIND_COMPUTE, 0, pointer);
    const struct compute *compute = &instance->computes[handle->compute];
    (void)state;
    *info = (struct compute_instance_info){handle_of(KIND_GPU, handle->gpu, -1, -1),
                                           handle_of(KIND_INSTANCE, handle->gpu, handle->instance, -1),
                                           (unsigned)handle->compute, compute->profile,
                                           {compute->start, COMPUTE_SLICES[compute->profile]}};
    return NVML_SUCCESS;
}

API nvmlReturn nvmlComputeInstanceDestroy(void *pointer)
{
    ROW(KIND_COMPUTE, 1, pointer);
    if (instance_busy(state, handle)) {
        state_change_end(0);
        return NVML_IN_USE;
    }
    instance->computes[handle->compute] = (struct compute){0};
    capabilities_write(state);
    return state_change_end(1);
}
