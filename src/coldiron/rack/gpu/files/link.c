/* What joins a GPU to others: PCIe, NVLink, the processors beside it. */
#include <stdio.h>
#include <string.h>

#include "access.h"

enum { TOPOLOGY_NODE = 40, P2P_OK = 0 };

GPU_WORD(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, gpu->pcie_generation)
GPU_WORD(nvmlDeviceGetCurrPcieLinkWidth, unsigned, gpu->pcie_lanes)
GPU_WORD(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, state->card.pcie_generation)
GPU_WORD(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, state->card.pcie_generation)
GPU_WORD(nvmlDeviceGetMaxPcieLinkWidth, unsigned, state->card.pcie_lanes)
GPU_WORD(nvmlDeviceGetPcieReplayCounter, unsigned, gpu->pcie_replays)
GPU_WORD(nvmlDeviceGetPcieSpeed, unsigned, 2000u << gpu->pcie_generation)
GPU_WORD(nvmlDeviceGetPcieLinkMaxSpeed, unsigned, state->card.pcie_generation)

API nvmlReturn nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kib_per_s)
{
    LOOK(gpu_look, device);
    (void)counter;
    *kib_per_s = busy(state, handle->gpu) ? 1024 * 1024 : 0;
    return NVML_SUCCESS;
}

static nvmlReturn link_look(void *device, unsigned link, struct state **state, struct gpu **gpu)
{
    struct handle *handle;
    nvmlReturn result = gpu_look(device, &handle, state, gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!(*state)->card.nvlink_links)
        return NVML_NOT_SUPPORTED;
    return link < (*state)->card.nvlink_links ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

API nvmlReturn nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    struct state *state;
    struct gpu *gpu;
    nvmlReturn result = link_look(device, link, &state, &gpu);
    if (result == NVML_SUCCESS)
        *active = !(gpu->nvlink_down >> link & 1);
    return result;
}

API nvmlReturn nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version)
{
    struct state *state;
    struct gpu *gpu;
    nvmlReturn result = link_look(device, link, &state, &gpu);
    if (result == NVML_SUCCESS)
        *version = state->card.nvlink_version;
    return result;
}

API nvmlReturn nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int capability, unsigned *value)
{
    struct state *state;
    struct gpu *gpu;
    nvmlReturn result = link_look(device, link, &state, &gpu);
    if (result == NVML_SUCCESS)
        *value = capability < 4 || capability == 5;
    return result;
}

API nvmlReturn nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter, unsigned long long *count)
{
    struct state *state;
    struct gpu *gpu;
    nvmlReturn result = link_look(device, link, &state, &gpu);
    (void)counter;
    if (result == NVML_SUCCESS)
        *count = link == 0 ? gpu->nvlink_errors : 0;
    return result;
}

/* The GPU at a link's other end: the others of the node in turn. -1 where it is the only one. */
static int neighbour(const struct state *state, int gpu, unsigned link)
{
    int others[GPUS], count = 0;
    for (int n = 0; n < GPUS; n++)
        if (state->gpus[n].used && n != gpu)
            others[count++] = n;
    return count ? others[link % (unsigned)count] : -1;
}

API nvmlReturn nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci_info *info)
{
    struct state *state;
    struct gpu *gpu;
    nvmlReturn result = link_look(device, link, &state, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    int other = neighbour(state, (int)(gpu - state->gpus), link);
    if (other < 0)
        return NVML_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->bus = state->gpus[other].pci_bus;
    info->pci_device_id = state->card.pci_device_id;
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    struct state *state;
    struct gpu *gpu;
    nvmlReturn result = link_look(device, link, &state, &gpu);
    if (result == NVML_SUCCESS)
        *type = 0;
    return result;
}

API nvmlReturn nvmlDeviceResetNvLinkErrorCounters(void *device, unsigned link)
{
    LOOK(gpu_change, device);
    (void)link;
    gpu->nvlink_errors = 0;
    return state_change_end(1);
}

API nvmlReturn nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level)
{
    if (!handle_at(one, KIND_GPU) || !handle_at(other, KIND_GPU))
        return NVML_INVALID_ARGUMENT;
    *level = TOPOLOGY_NODE;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetTopologyNearestGpus(void *device, int level, unsigned *count, void **devices)
{
    LOOK(gpu_look, device);
    unsigned room = devices ? *count : 0, number = 0;
    int gpus[GPUS], seen = level >= TOPOLOGY_NODE ? visible(state, gpus) : 0;
    for (int n = 0; n < seen; n++) {
        if (gpus[n] == handle->gpu)
            continue;
        if (number < room)
            devices[number] = handle_of(KIND_GPU, gpus[n], -1, -1);
        number++;
    }
    *count = number;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetP2PStatus(void *one, void *other, int capability, int *status)
{
    (void)capability;
    if (!handle_at(one, KIND_GPU) || !handle_at(other, KIND_GPU))
        return NVML_INVALID_ARGUMENT;
    *status = P2P_OK;
    return NVML_SUCCESS;
}

/* The processors of the node that are there for a GPU: all of them, for the rack's nodes have one package. */
static nvmlReturn near(void *device, unsigned words, unsigned long *set, unsigned long bits)
{
    LOOK(device_look, device);
    if (!words)
        return NVML_INSUFFICIENT_SIZE;
    memset(set, 0, words * sizeof *set);
    set[0] = bits;
    return NVML_SUCCESS;
}

static unsigned long processors(void)
{
    char text[64] = "";
    unsigned last = 0;
    FILE *file = fopen("/sys/devices/system/cpu/online", "re");
    if (file) {
        if (!fgets(text, sizeof text, file))
            *text = 0;
        fclose(file);
    }
    const char *end = strrchr(text, '-');
    sscanf(end ? end + 1 : text, "%u", &last);
    return last >= 63 ? ~0ul : (1ul << (last + 1)) - 1;
}

API nvmlReturn nvmlDeviceGetCpuAffinity(void *device, unsigned words, unsigned long *set)
{
    return near(device, words, set, processors());
}

API nvmlReturn nvmlDeviceGetCpuAffinityWithinScope(void *device, unsigned words, unsigned long *set, int scope)
{
    (void)scope;
    return near(device, words, set, processors());
}

API nvmlReturn nvmlDeviceGetMemoryAffinity(void *device, unsigned words, unsigned long *set, int scope)
{
    (void)scope;
    return near(device, words, set, 1);
}

/* The fabric stands once its manager runs; which the simulation takes as done where the cards have links. */
static nvmlReturn fabric(void *device, unsigned char *cluster, nvmlReturn *status, unsigned *clique,
                         unsigned char *registered)
{
    LOOK(gpu_look, device);
    memset(cluster, 0, 16);
    *status = NVML_SUCCESS;
    *clique = 0;
    *registered = state->card.nvlink_links ? 3 : 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetGpuFabricInfo(void *device, struct fabric_info *info)
{
    return fabric(device, info->cluster, &info->status, &info->clique, &info->state);
}

API nvmlReturn nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_info_v *info)
{
    info->health = 0;
    return fabric(device, info->cluster, &info->status, &info->clique, &info->state);
}
