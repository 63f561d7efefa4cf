/* The state file: sections of `key = value`, one lock, replaced in place so that a container's mount of it stays true. */
#define _GNU_SOURCE
#include "state.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum type { TYPE_TEXT, TYPE_WORD, TYPE_WIDE, TYPE_INT, TYPE_BITS };

struct key {
    const char *name;
    enum type type;
    size_t offset;
};

#define TEXT_OF(of, name) {#name, TYPE_TEXT, offsetof(struct of, name)}
#define WORD_OF(of, name) {#name, TYPE_WORD, offsetof(struct of, name)}
#define WIDE_OF(of, name) {#name, TYPE_WIDE, offsetof(struct of, name)}
#define INT_OF(of, name) {#name, TYPE_INT, offsetof(struct of, name)}
#define BITS_OF(of, name) {#name, TYPE_BITS, offsetof(struct of, name)}

static const struct key NODE[] = {
    TEXT_OF(node, module), TEXT_OF(node, driver), TEXT_OF(node, faults), TEXT_OF(node, cuda), {0}};
static const struct key CARD[] = {
    TEXT_OF(card, name), TEXT_OF(card, vbios), TEXT_OF(card, part_number), WORD_OF(card, brand),
    WORD_OF(card, architecture), WORD_OF(card, capability_major), WORD_OF(card, capability_minor),
    WORD_OF(card, memory_mib), WORD_OF(card, multiprocessors), WORD_OF(card, cores), WORD_OF(card, pci_device_id),
    WORD_OF(card, pci_subsystem_id), WORD_OF(card, power_idle_mw), WORD_OF(card, power_min_mw),
    WORD_OF(card, power_max_mw), WORD_OF(card, power_default_mw), WORD_OF(card, clock_sm_max_mhz),
    WORD_OF(card, clock_sm_idle_mhz), WORD_OF(card, clock_memory_mhz), WORD_OF(card, pcie_generation),
    WORD_OF(card, pcie_lanes), WORD_OF(card, nvlink_links), WORD_OF(card, nvlink_version),
    WORD_OF(card, nvlink_mb_per_s), WORD_OF(card, slowdown_celsius), WORD_OF(card, shutdown_celsius),
    WORD_OF(card, mig), WORD_OF(card, mig_slices), WORD_OF(card, mig_memory_slices), {0}};
static const struct key PROFILE[] = {
    TEXT_OF(profile, name), WORD_OF(profile, kind), WORD_OF(profile, id), WORD_OF(profile, slices),
    WORD_OF(profile, count), WORD_OF(profile, size), BITS_OF(profile, starts), WORD_OF(profile, multiprocessors),
    WORD_OF(profile, copy_engines), WORD_OF(profile, decoders), WORD_OF(profile, jpeg), WORD_OF(profile, ofa),
    WORD_OF(profile, memory_mib), {0}};
static const struct key GPU[] = {
    TEXT_OF(gpu, uuid), TEXT_OF(gpu, serial), TEXT_OF(gpu, faults), WORD_OF(gpu, pci_bus), WORD_OF(gpu, module_id),
    WORD_OF(gpu, numa), WORD_OF(gpu, lost), WORD_OF(gpu, hidden), WORD_OF(gpu, persistence),
    WORD_OF(gpu, compute_mode), WORD_OF(gpu, mig_mode), WORD_OF(gpu, mig_pending), WORD_OF(gpu, ecc_mode),
    WORD_OF(gpu, ecc_pending), WORD_OF(gpu, power_limit_mw), WORD_OF(gpu, temperature_celsius),
    WORD_OF(gpu, memory_temperature_celsius), WORD_OF(gpu, clock_sm_mhz), WORD_OF(gpu, clock_memory_mhz),
    WORD_OF(gpu, locked_min_mhz), WORD_OF(gpu, locked_max_mhz), WORD_OF(gpu, slow), WORD_OF(gpu, pcie_generation),
    WORD_OF(gpu, pcie_lanes), WORD_OF(gpu, pcie_replays), BITS_OF(gpu, nvlink_down), WORD_OF(gpu, nvlink_errors),
    WIDE_OF(gpu, ecc_corrected), WIDE_OF(gpu, ecc_uncorrected), WIDE_OF(gpu, ecc_corrected_total),
    WIDE_OF(gpu, ecc_uncorrected_total), WORD_OF(gpu, remapped_corrected), WORD_OF(gpu, remapped_uncorrected),
    WORD_OF(gpu, remap_pending), WORD_OF(gpu, remap_failed), {0}};
static const struct key INSTANCE[] = {WORD_OF(instance, profile), WORD_OF(instance, start), {0}};
static const struct key COMPUTE[] = {WORD_OF(compute, profile), WORD_OF(compute, start), {0}};
static const struct key PROCESS[] = {
    WORD_OF(process, memory_mib), INT_OF(process, instance), INT_OF(process, compute), {0}};
static const struct key EVENT[] = {WORD_OF(event, gpu), WIDE_OF(event, type), WIDE_OF(event, data), {0}};

static const char HEADER[] =
    "# SIMULATED GPUs of this node: no accelerator is here. The simulated driver reads this file at every call and\n"
    "# writes it when a tool sets something; `simulated-gpu` edits it under its lock.\n";

enum { FILE_MAX = 128 * 1024 };

static __thread struct state view;
static __thread char text[FILE_MAX];
static __thread int changing = -1;
static char directory[PATH_MAX], version[TEXT];
static const char *const ELSEWHERE[] = {"/var/lib/simulated-gpu/state", "/proc/driver/nvidia/simulated-state"};

__attribute__((constructor)) static void find_library(void)
{
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr((void *)find_library, &info) || !realpath(info.dli_fname, real))
        return;
    char *name = strrchr(real, '/');
    if (!name)
        return;
    static const char PREFIX[] = "/libnvidia-ml.so.";
    const char *rest = name + sizeof PREFIX - 1;
    if (!strncmp(name, PREFIX, sizeof PREFIX - 1) && strchr(rest, '.'))
        snprintf(version, sizeof version, "%s", rest);
    name[1] = 0;
    snprintf(directory, sizeof directory, "%s", real);
}

const char *library_directory(void)
{
    return directory;
}

const char *library_version(void)
{
    return version;
}

static int state_open(int flags)
{
    char beside[PATH_MAX + 2 * TEXT];
    int file = -1;
    if (*version) {
        snprintf(beside, sizeof beside, "%snvidia-simulated-gpu-state.so.%s", directory, version);
        file = open(beside, flags | O_CLOEXEC);
    }
    for (size_t n = 0; file < 0 && n < sizeof ELSEWHERE / sizeof *ELSEWHERE; n++)
        file = open(ELSEWHERE[n], flags | O_CLOEXEC);
    return file;
}

static unsigned bits_of(const char *value)
{
    unsigned bits = 0;
    char *end;
    for (;;) {
        unsigned long bit = strtoul(value, &end, 10);
        if (end == value)
            return bits;
        if (bit < 32)
            bits |= 1u << bit;
        value = end;
    }
}

static void put(void *at, const struct key *keys, const char *name, const char *value)
{
    for (; keys->name; keys++) {
        if (strcmp(keys->name, name))
            continue;
        char *place = (char *)at + keys->offset;
        switch (keys->type) {
        case TYPE_TEXT:
            snprintf(place, TEXT, "%s", value);
            break;
        case TYPE_WORD:
            *(unsigned *)place = (unsigned)strtoul(value, NULL, 0);
            break;
        case TYPE_WIDE:
            *(unsigned long long *)place = strtoull(value, NULL, 0);
            break;
        case TYPE_INT:
            *(int *)place = (int)strtol(value, NULL, 0);
            break;
        case TYPE_BITS:
            *(unsigned *)place = bits_of(value);
            break;
        }
        return;
    }
}

/* The place and keys of the section that a line opens; one that does not fit into the tables has none. */
static void *open_section(struct state *state, const char *line, const struct key **keys)
{
    char name[16];
    unsigned a = 0, b = 0, c = 0;
    *keys = NULL;
    if (sscanf(line, "[%15[a-z] %u %u %u]", name, &a, &b, &c) < 1)
        return NULL;
    if (!strcmp(name, "node")) {
        *keys = NODE;
        return &state->node;
    }
    if (!strcmp(name, "card")) {
        *keys = CARD;
        return &state->card;
    }
    if (!strcmp(name, "profile") && a < PROFILES) {
        *keys = PROFILE;
        state->profiles[a].used = 1;
        return &state->profiles[a];
    }
    if (!strcmp(name, "gpu") && a < GPUS) {
        *keys = GPU;
        state->gpus[a].used = 1;
        return &state->gpus[a];
    }
    if (!strcmp(name, "instance") && a < GPUS && b >= 1 && b <= INSTANCES) {
        *keys = INSTANCE;
        state->gpus[a].instances[b - 1].used = 1;
        return &state->gpus[a].instances[b - 1];
    }
    if (!strcmp(name, "compute") && a < GPUS && b >= 1 && b <= INSTANCES && c < COMPUTES) {
        *keys = COMPUTE;
        state->gpus[a].instances[b - 1].computes[c].used = 1;
        return &state->gpus[a].instances[b - 1].computes[c];
    }
    if (!strcmp(name, "process") && a < GPUS)
        for (int n = 0; n < PROCESSES; n++)
            if (!state->processes[n].used) {
                *keys = PROCESS;
                state->processes[n] = (struct process){.used = 1, .gpu = a, .pid = b, .instance = -1, .compute = -1};
                return &state->processes[n];
            }
    if (!strcmp(name, "event"))
        for (int n = 0; n < EVENTS; n++)
            if (!state->events[n].used) {
                *keys = EVENT;
                state->events[n] = (struct event){.used = 1, .number = a};
                return &state->events[n];
            }
    return NULL;
}

static int parse(struct state *state, int file)
{
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    if (length <= 0)
        return -1;
    text[length] = 0;
    memset(state, 0, sizeof *state);
    void *at = NULL;
    const struct key *keys = NULL;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (*line == '[') {
            at = open_section(state, line, &keys);
            continue;
        }
        char *equals = strchr(line, '=');
        if (!equals || !at || *line == '#')
            continue;
        char *end = equals;
        while (end > line && isspace((unsigned char)end[-1]))
            end--;
        *end = 0;
        char *value = equals + 1;
        while (isspace((unsigned char)*value))
            value++;
        put(at, keys, line, value);
    }
    /* A process that has ended holds nothing: the kernel module would have cleaned up behind it. */
    for (int n = 0; n < PROCESSES; n++) {
        char path[32];
        snprintf(path, sizeof path, "/proc/%u", state->processes[n].pid);
        if (state->processes[n].used && access(path, F_OK) && errno == ENOENT && !access("/proc/self", F_OK))
            state->processes[n].used = 0;
    }
    return 0;
}

static void dump(FILE *to, const void *at, const struct key *keys)
{
    for (; keys->name; keys++) {
        const char *place = (const char *)at + keys->offset;
        switch (keys->type) {
        case TYPE_TEXT:
            fprintf(to, "%s = %s\n", keys->name, place);
            break;
        case TYPE_WORD:
            fprintf(to, "%s = %u\n", keys->name, *(const unsigned *)place);
            break;
        case TYPE_WIDE:
            fprintf(to, "%s = %llu\n", keys->name, *(const unsigned long long *)place);
            break;
        case TYPE_INT:
            fprintf(to, "%s = %d\n", keys->name, *(const int *)place);
            break;
        case TYPE_BITS:
            fprintf(to, "%s =", keys->name);
            for (unsigned bit = 0; bit < 32; bit++)
                if (*(const unsigned *)place >> bit & 1)
                    fprintf(to, " %u", bit);
            fputc('\n', to);
            break;
        }
    }
}

static void dump_gpu(FILE *to, const struct gpu *gpu, int index)
{
    fprintf(to, "\n[gpu %d]\n", index);
    dump(to, gpu, GPU);
    for (int i = 0; i < INSTANCES; i++) {
        const struct instance *instance = &gpu->instances[i];
        if (!instance->used)
            continue;
        fprintf(to, "\n[instance %d %d]\n", index, i + 1);
        dump(to, instance, INSTANCE);
        for (int c = 0; c < COMPUTES; c++)
            if (instance->computes[c].used) {
                fprintf(to, "\n[compute %d %d %d]\n", index, i + 1, c);
                dump(to, &instance->computes[c], COMPUTE);
            }
    }
}

static int save(const struct state *state, int file)
{
    FILE *to = fmemopen(text, sizeof text, "w");
    if (!to)
        return -1;
    fprintf(to, "%s\n[node]\n", HEADER);
    dump(to, &state->node, NODE);
    fprintf(to, "\n[card]\n");
    dump(to, &state->card, CARD);
    for (int n = 0; n < PROFILES; n++)
        if (state->profiles[n].used) {
            fprintf(to, "\n[profile %d]\n", n);
            dump(to, &state->profiles[n], PROFILE);
        }
    for (int n = 0; n < GPUS; n++)
        if (state->gpus[n].used)
            dump_gpu(to, &state->gpus[n], n);
    for (int n = 0; n < PROCESSES; n++)
        if (state->processes[n].used) {
            fprintf(to, "\n[process %u %u]\n", state->processes[n].gpu, state->processes[n].pid);
            dump(to, &state->processes[n], PROCESS);
        }
    for (int n = 0; n < EVENTS; n++)
        if (state->events[n].used) {
            fprintf(to, "\n[event %u]\n", state->events[n].number);
            dump(to, &state->events[n], EVENT);
        }
    long length = ftell(to);
    if (fclose(to) || length < 0)
        return -1;
    if (pwrite(file, text, (size_t)length, 0) != length || ftruncate(file, length))
        return -1;
    return 0;
}

struct state *state_look(void)
{
    if (changing >= 0)
        return &view;
    int file = state_open(O_RDONLY);
    if (file < 0)
        return NULL;
    flock(file, LOCK_SH);
    int failed = parse(&view, file);
    close(file);
    return failed ? NULL : &view;
}

struct state *state_change(nvmlReturn *result)
{
    *result = NVML_NO_PERMISSION;
    if (geteuid() != 0)
        return NULL;
    int file = state_open(O_RDWR);
    if (file < 0)
        return NULL;
    flock(file, LOCK_EX);
    if (parse(&view, file)) {
        close(file);
        *result = NVML_OPERATING_SYSTEM;
        return NULL;
    }
    changing = file;
    *result = NVML_SUCCESS;
    return &view;
}

nvmlReturn state_change_end(int keep)
{
    int failed = keep ? save(&view, changing) : 0;
    close(changing);
    changing = -1;
    return failed ? NVML_OPERATING_SYSTEM : NVML_SUCCESS;
}
