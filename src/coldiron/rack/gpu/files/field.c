/* Single values by number: the way in which newer clients ask for counters. */
#include <time.h>

#include "access.h"

enum {
    FIELD_ECC_CURRENT = 1, FIELD_ECC_PENDING = 2, FIELD_SBE_VOLATILE = 3, FIELD_DBE_VOLATILE = 4,
    FIELD_SBE_AGGREGATE = 5, FIELD_DBE_AGGREGATE = 6, FIELD_SBE_VOLATILE_MEMORY = 11, FIELD_DBE_VOLATILE_MEMORY = 12,
    FIELD_SBE_AGGREGATE_MEMORY = 22, FIELD_DBE_AGGREGATE_MEMORY = 23, FIELD_CRC_FLIT_TOTAL = 38,
    FIELD_CRC_DATA_TOTAL = 45, FIELD_REPLAY_TOTAL = 52, FIELD_RECOVERY_TOTAL = 59, FIELD_MEMORY_TEMPERATURE = 82,
    FIELD_ENERGY = 83, FIELD_SPEED_L0 = 84, FIELD_SPEED_L5 = 89, FIELD_SPEED_COMMON = 90, FIELD_LINKS = 91,
    FIELD_PCIE_REPLAYS = 94, FIELD_SPEED_L6 = 132, FIELD_SPEED_L11 = 137, FIELD_REMAPPED_CORRECTED = 142,
    FIELD_REMAPPED_UNCORRECTED = 143, FIELD_REMAP_PENDING = 144, FIELD_REMAP_FAILED = 145,
    FIELD_SWITCH_LINKS = 147, FIELD_LINK_REPLAY = 161, FIELD_LINK_RECOVERY = 162, FIELD_LINK_CRC = 163,
    FIELD_LINK_SPEED = 164, FIELD_LINK_STATE = 165, FIELD_LINK_VERSION = 166, FIELD_RESETLESS_MIG = 184,
    FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186, FIELD_POWER_MIN = 187, FIELD_POWER_MAX = 188,
    FIELD_POWER_DEFAULT = 189, FIELD_POWER_CURRENT = 190, FIELD_POWER_REQUESTED = 192,
};

nvmlReturn nvmlDeviceGetPowerUsage(void *device, unsigned *value);

static void word(struct field_value *field, unsigned value)
{
    field->type = VALUE_UINT;
    field->value.word = value;
    field->result = NVML_SUCCESS;
}

static void wide(struct field_value *field, unsigned long long value)
{
    field->type = VALUE_ULONGLONG;
    field->value.wide = value;
    field->result = NVML_SUCCESS;
}

static unsigned link_speed(const struct state *state, const struct gpu *gpu, unsigned link)
{
    return gpu->nvlink_down >> link & 1 ? 0 : state->card.nvlink_mb_per_s;
}

/* What is asked of one link: by the field's number, or by its scope. */
static int answer_link(struct field_value *field, const struct state *state, const struct gpu *gpu)
{
    unsigned links = state->card.nvlink_links;
    unsigned id = field->id, link = field->scope;
    if (id >= FIELD_SPEED_L0 && id <= FIELD_SPEED_L5)
        link = id - FIELD_SPEED_L0;
    else if (id >= FIELD_SPEED_L6 && id <= FIELD_SPEED_L11)
        link = id - FIELD_SPEED_L6 + 6;
    else if (id < FIELD_LINK_REPLAY || id > FIELD_LINK_VERSION)
        return 0;
    if (link >= links)
        return 0;
    if (id == FIELD_LINK_STATE)
        word(field, !(gpu->nvlink_down >> link & 1));
    else if (id == FIELD_LINK_VERSION)
        word(field, state->card.nvlink_version);
    else if (id == FIELD_LINK_REPLAY || id == FIELD_LINK_RECOVERY || id == FIELD_LINK_CRC)
        wide(field, link == 0 ? gpu->nvlink_errors : 0);
    else
        word(field, link_speed(state, gpu, link));
    return 1;
}

static void answer(struct field_value *field, void *device, const struct state *state, const struct gpu *gpu)
{
    unsigned drawn = 0;
    switch (field->id) {
    case FIELD_ECC_CURRENT: word(field, gpu->ecc_mode); return;
    case FIELD_ECC_PENDING: word(field, gpu->ecc_pending); return;
    case FIELD_SBE_VOLATILE: case FIELD_SBE_VOLATILE_MEMORY: wide(field, gpu->ecc_corrected); return;
    case FIELD_DBE_VOLATILE: case FIELD_DBE_VOLATILE_MEMORY: wide(field, gpu->ecc_uncorrected); return;
    case FIELD_SBE_AGGREGATE: case FIELD_SBE_AGGREGATE_MEMORY: wide(field, gpu->ecc_corrected_total); return;
    case FIELD_DBE_AGGREGATE: case FIELD_DBE_AGGREGATE_MEMORY: wide(field, gpu->ecc_uncorrected_total); return;
    case FIELD_MEMORY_TEMPERATURE: word(field, gpu->memory_temperature_celsius); return;
    case FIELD_ENERGY: wide(field, 1000000000ull); return;
    case FIELD_LINKS: case FIELD_SWITCH_LINKS: word(field, state->card.nvlink_links); return;
    case FIELD_SPEED_COMMON: word(field, state->card.nvlink_mb_per_s); return;
    case FIELD_PCIE_REPLAYS: word(field, gpu->pcie_replays); return;
    case FIELD_CRC_FLIT_TOTAL: case FIELD_CRC_DATA_TOTAL: case FIELD_REPLAY_TOTAL: case FIELD_RECOVERY_TOTAL:
        wide(field, gpu->nvlink_errors);
        return;
    case FIELD_REMAPPED_CORRECTED: word(field, gpu->remapped_corrected); return;
    case FIELD_REMAPPED_UNCORRECTED: word(field, gpu->remapped_uncorrected); return;
    case FIELD_REMAP_PENDING: word(field, gpu->remap_pending); return;
    case FIELD_REMAP_FAILED: word(field, gpu->remap_failed); return;
    case FIELD_RESETLESS_MIG: word(field, state->card.mig); return;
    case FIELD_POWER_MIN: word(field, state->card.power_min_mw); return;
    case FIELD_POWER_MAX: word(field, state->card.power_max_mw); return;
    case FIELD_POWER_DEFAULT: word(field, state->card.power_default_mw); return;
    case FIELD_POWER_CURRENT: case FIELD_POWER_REQUESTED: word(field, gpu->power_limit_mw); return;
    case FIELD_POWER_AVERAGE: case FIELD_POWER_INSTANT:
        field->result = nvmlDeviceGetPowerUsage(device, &drawn);
        field->type = VALUE_UINT;
        field->value.word = drawn;
        return;
    default:
        if (!answer_link(field, state, gpu))
            field->result = NVML_NOT_SUPPORTED;
    }
}

API nvmlReturn nvmlDeviceGetFieldValues(void *device, int count, struct field_value *fields)
{
    LOOK(device_look, device);
    if (count < 1 || !fields)
        return NVML_INVALID_ARGUMENT;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int n = 0; n < count; n++) {
        fields[n].timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        fields[n].latency_us = 0;
        fields[n].value.wide = 0;
        answer(&fields[n], device, state, gpu);
    }
    return NVML_SUCCESS;
}
