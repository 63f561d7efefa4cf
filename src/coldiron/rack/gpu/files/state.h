/* What the simulated GPUs of a node are, read from its state file at every call: whoever edits the file is seen at once,
 * and processes and containers agree. */
#ifndef COLDIRON_STATE_H
#define COLDIRON_STATE_H

#include <stddef.h>

#include "nvml_api.h"

enum { GPUS = 16, PROFILES = 16, INSTANCES = 7, COMPUTES = 7, PROCESSES = 64, EVENTS = 64, SLICES = 8, TEXT = 96 };

struct node {
    char module[TEXT]; /* the version that the loaded kernel module says */
    char driver[TEXT]; /* the user space's, where the library's own name does not say it */
    char faults[TEXT]; /* what is broken of the node as a whole */
    char cuda[TEXT];   /* the newest CUDA that the driver runs, as 12.4 */
};

struct card {
    char name[TEXT], vbios[TEXT], part_number[TEXT];
    unsigned brand, architecture, capability_major, capability_minor;
    unsigned memory_mib, multiprocessors, cores, pci_device_id, pci_subsystem_id;
    unsigned power_idle_mw, power_min_mw, power_max_mw, power_default_mw;
    unsigned clock_sm_max_mhz, clock_sm_idle_mhz, clock_memory_mhz;
    unsigned pcie_generation, pcie_lanes;
    unsigned nvlink_links, nvlink_version, nvlink_mb_per_s;
    unsigned slowdown_celsius, shutdown_celsius;
    unsigned mig, mig_slices, mig_memory_slices;
};

struct profile {
    int used;
    char name[TEXT];
    unsigned kind, id, slices, count, size, starts; /* starts: a bit for each memory slice that one may begin at */
    unsigned multiprocessors, copy_engines, decoders, jpeg, ofa, memory_mib;
};

struct compute {
    int used;
    unsigned profile, start;
};

struct instance {
    int used;
    unsigned profile, start;
    struct compute computes[COMPUTES];
};

struct gpu {
    int used;
    char uuid[TEXT], serial[TEXT], faults[TEXT];
    unsigned pci_bus, module_id, numa;
    unsigned lost, hidden; /* hidden: it is not on the bus at all */
    unsigned persistence, compute_mode, mig_mode, mig_pending, ecc_mode, ecc_pending;
    unsigned power_limit_mw, temperature_celsius, memory_temperature_celsius;
    unsigned clock_sm_mhz, clock_memory_mhz;          /* application clocks */
    unsigned locked_min_mhz, locked_max_mhz;          /* 0: not locked */
    unsigned slow; /* why clocks are held down: bits as nvmlClocksEventReason */
    unsigned pcie_generation, pcie_lanes, pcie_replays;
    unsigned nvlink_down; /* a bit for each link that is down */
    unsigned nvlink_errors;
    unsigned long long ecc_corrected, ecc_uncorrected, ecc_corrected_total, ecc_uncorrected_total;
    unsigned remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
    struct instance instances[INSTANCES];
};

struct process {
    int used;
    unsigned gpu, pid, memory_mib;
    int instance, compute; /* -1: the whole GPU */
};

struct event {
    int used;
    unsigned number, gpu;
    unsigned long long type, data;
};

struct state {
    struct node node;
    struct card card;
    struct profile profiles[PROFILES];
    struct gpu gpus[GPUS];
    struct process processes[PROCESSES];
    struct event events[EVENTS];
};

/* What a client holds as a handle. */
enum kind { KIND_GPU = 1, KIND_SLICE, KIND_INSTANCE, KIND_COMPUTE };

struct handle {
    enum kind kind;
    int gpu, instance, compute;
};

struct handle *handle_of(enum kind kind, int gpu, int instance, int compute);
/* The handle that a client gave, NULL where it is none of that kind. */
struct handle *handle_at(void *pointer, enum kind kind);

/* This thread's fresh view, NULL where no state can be read. It holds until the thread looks again. */
struct state *state_look(void);
/* The same under the file's lock, to be changed; NULL where this process may not. Every one is ended by _end. */
struct state *state_change(nvmlReturn *result);
nvmlReturn state_change_end(int keep);

/* Where this library lies, with a slash at its end, and the driver's version that its name says ("" for none). */
const char *library_directory(void);
const char *library_version(void);

nvmlReturn copy_text(char *to, unsigned size, const char *text);
/* A running GPU or slice: its row of the state, the handle and what else is wrong with it. */
nvmlReturn device_look(void *pointer, struct handle **handle, struct state **state, struct gpu **gpu);
nvmlReturn gpu_look(void *pointer, struct handle **handle, struct state **state, struct gpu **gpu);
/* Begin a change of a whole GPU, as root. After success it is ended by state_change_end. */
nvmlReturn gpu_change(void *pointer, struct handle **handle, struct state **state, struct gpu **gpu);

int initialized(void);
/* The GPUs whose device files this process may open, in order; returns how many. */
int visible(const struct state *state, int *gpus);
int busy(const struct state *state, int gpu);
void slice_uuid(const struct gpu *gpu, int instance, int compute, char *text);
unsigned long long used_mib(const struct state *state, const struct handle *handle);

/* The kernel module's side of MIG: capability files and devices of a GPU's instances. */
void capabilities_write(const struct state *state);

#endif
