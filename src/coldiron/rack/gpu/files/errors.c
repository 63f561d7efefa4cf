/* Memory errors, remapped rows, XIDs: how a card says that it is ill. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "access.h"

enum { CORRECTED = 0, UNCORRECTED = 1 };
enum { VOLATILE = 0, AGGREGATE = 1 };
enum { LOCATION_MEMORY = 2, LOCATION_SRAM = 7 };

static unsigned long long errors(const struct gpu *gpu, int type, int counter)
{
    if (counter == VOLATILE)
        return type == CORRECTED ? gpu->ecc_corrected : gpu->ecc_uncorrected;
    return type == CORRECTED ? gpu->ecc_corrected_total : gpu->ecc_uncorrected_total;
}

API nvmlReturn nvmlDeviceGetEccMode(void *device, int *current, int *pending)
{
    LOOK(gpu_look, device);
    *current = (int)gpu->ecc_mode;
    *pending = (int)gpu->ecc_pending;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetDefaultEccMode(void *device, int *mode)
{
    LOOK(gpu_look, device);
    *mode = 1;
    return NVML_SUCCESS;
}

/* It takes effect when the driver starts anew. */
API nvmlReturn nvmlDeviceSetEccMode(void *device, int mode)
{
    LOOK(gpu_change, device);
    gpu->ecc_pending = mode != 0;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceClearEccErrorCounts(void *device, int counter)
{
    LOOK(gpu_change, device);
    gpu->ecc_corrected = gpu->ecc_uncorrected = 0;
    if (counter == AGGREGATE)
        gpu->ecc_corrected_total = gpu->ecc_uncorrected_total = 0;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count)
{
    LOOK(gpu_look, device);
    if (!gpu->ecc_mode)
        return NVML_NOT_SUPPORTED;
    *count = errors(gpu, type, counter);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetMemoryErrorCounter(void *device, int type, int counter, int location,
                                               unsigned long long *count)
{
    LOOK(gpu_look, device);
    if (!gpu->ecc_mode || (location != LOCATION_MEMORY && location != LOCATION_SRAM))
        return NVML_NOT_SUPPORTED;
    *count = location == LOCATION_MEMORY ? errors(gpu, type, counter) : 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetDetailedEccErrors(void *device, int type, int counter, struct detailed_ecc *counts)
{
    LOOK(gpu_look, device);
    if (!gpu->ecc_mode)
        return NVML_NOT_SUPPORTED;
    *counts = (struct detailed_ecc){.memory = errors(gpu, type, counter)};
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetSramEccErrorStatus(void *device, struct sram_status *status)
{
    LOOK(gpu_look, device);
    if (!gpu->ecc_mode)
        return NVML_NOT_SUPPORTED;
    *status = (struct sram_status){.version = status->version};
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                         unsigned *failed)
{
    LOOK(gpu_look, device);
    *corrected = gpu->remapped_corrected;
    *uncorrected = gpu->remapped_uncorrected;
    *pending = gpu->remap_pending;
    *failed = gpu->remap_failed;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetRowRemapperHistogram(void *device, struct row_histogram *histogram)
{
    LOOK(gpu_look, device);
    unsigned hit = gpu->remapped_corrected + gpu->remapped_uncorrected;
    unsigned banks = state->card.memory_mib / 32;
    *histogram = (struct row_histogram){.max = banks - hit, .high = hit};
    return NVML_SUCCESS;
}

/* Cards of these generations remap rows; they retire no pages. */
API nvmlReturn nvmlDeviceGetRetiredPages(void *device, int cause, unsigned *count, unsigned long long *pages)
{
    LOOK(gpu_look, device);
    (void)cause;
    (void)pages;
    (void)count;
    return NVML_NOT_SUPPORTED;
}

API nvmlReturn nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending)
{
    LOOK(gpu_look, device);
    (void)pending;
    return NVML_NOT_SUPPORTED;
}

/* Events: a set sees what happens after a GPU was registered in it. */
enum { SET_MAX = GPUS };

struct event_set {
    unsigned long long types[SET_MAX];
    unsigned seen[SET_MAX];
};

static unsigned newest(const struct state *state)
{
    unsigned number = 0;
    for (int n = 0; n < EVENTS; n++)
        if (state->events[n].used && state->events[n].number > number)
            number = state->events[n].number;
    return number;
}

API nvmlReturn nvmlEventSetCreate(struct event_set **set)
{
    if (!initialized())
        return NVML_UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_MEMORY;
}

API nvmlReturn nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types)
{
    LOOK(gpu_look, device);
    *types = 0x19f;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceRegisterEvents(void *device, unsigned long long types, struct event_set *set)
{
    LOOK(gpu_look, device);
    if (!set)
        return NVML_INVALID_ARGUMENT;
    set->types[handle->gpu] |= types;
    set->seen[handle->gpu] = newest(state);
    return NVML_SUCCESS;
}

/* The oldest event that the set has not given yet. */
static const struct event *next_event(const struct state *state, const struct event_set *set)
{
    const struct event *found = NULL;
    for (int n = 0; n < EVENTS; n++) {
        const struct event *one = &state->events[n];
        if (one->used && one->gpu < GPUS && (set->types[one->gpu] & one->type) && one->number > set->seen[one->gpu] &&
            (!found || one->number < found->number))
            found = one;
    }
    return found;
}

API nvmlReturn nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned milliseconds)
{
    const struct timespec nap = {.tv_nsec = 100 * 1000 * 1000};
    if (!initialized())
        return NVML_UNINITIALIZED;
    if (!set)
        return NVML_INVALID_ARGUMENT;
    for (unsigned waited = 0;; waited += 100) {
        const struct state *state = state_look();
        const struct event *event = state ? next_event(state, set) : NULL;
        if (event) {
            set->seen[event->gpu] = event->number;
            *data = (struct event_data){handle_of(KIND_GPU, (int)event->gpu, -1, -1), event->type, event->data,
                                        0xffffffffu, 0xffffffffu};
            return NVML_SUCCESS;
        }
        if (waited >= milliseconds)
            return NVML_TIMEOUT;
        nanosleep(&nap, NULL);
    }
}

API nvmlReturn nvmlEventSetWait(struct event_set *set, struct event_data *data, unsigned milliseconds)
{
    return nvmlEventSetWait_v2(set, data, milliseconds);
}
