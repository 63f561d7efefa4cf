/* The parts of NVIDIA's management interface that the simulation answers: own declarations of the layouts and numbers
 * that its clients rely on, written from the public ctypes binding (nvidia-ml-py). No line comes from NVIDIA's header. */
#ifndef COLDIRON_NVML_API_H
#define COLDIRON_NVML_API_H

#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int nvmlReturn;

enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_OPERATING_SYSTEM = 17,
    NVML_VERSION_MISMATCH = 18,
    NVML_IN_USE = 19,
    NVML_MEMORY = 20,
    NVML_INSUFFICIENT_RESOURCES = 23,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
};

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct pci_info_ext {
    unsigned version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct memory_info {
    unsigned long long total, free, used;
};

struct memory_info_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct bar1_info {
    unsigned long long total, free, used;
};

struct utilization {
    unsigned gpu, memory;
};

struct process_info {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};

struct process_info_v1 {
    unsigned pid;
    unsigned long long used_memory;
};

struct process_detail {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
    unsigned long long used_protected_memory;
};

struct process_detail_list {
    unsigned version, mode, entries;
    struct process_detail *processes;
};

struct process_sample {
    unsigned pid;
    unsigned long long time;
    unsigned sm, memory, encoder, decoder;
};

union value {
    double real;
    unsigned word;
    unsigned long number;
    unsigned long long wide;
    long long signed_wide;
    int integer;
    unsigned short half;
};

enum value_type { VALUE_DOUBLE = 0, VALUE_UINT = 1, VALUE_ULONG = 2, VALUE_ULONGLONG = 3, VALUE_INT = 5 };

struct field_value {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type;
    nvmlReturn result;
    union value value;
};

struct power_value {
    unsigned version, scope, milliwatts;
};

struct temperature_v1 {
    unsigned version, sensor;
    int celsius;
};

struct margin_temperature {
    unsigned version;
    int celsius;
};

struct thermal_settings {
    unsigned count;
    struct {
        int controller, minimum, maximum, current, target;
    } sensors[3];
};

struct violation_time {
    unsigned long long reference, violation;
};

struct row_histogram {
    unsigned max, high, partial, low, none;
};

struct sram_status {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected;
    unsigned long long bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
};

struct detailed_ecc {
    unsigned long long l1, l2, memory, registers;
};

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

struct gpu_profile {
    unsigned id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
};

struct gpu_profile_v2 {
    unsigned version, id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
    char name[96];
};

struct gpu_profile_v3 {
    unsigned version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
    char name[96];
    unsigned capabilities;
};

struct compute_profile {
    unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
};

struct compute_profile_v2 {
    unsigned version;
    struct compute_profile profile;
    char name[96];
};

struct compute_profile_v3 {
    unsigned version;
    struct compute_profile profile;
    char name[96];
    unsigned capabilities;
};

struct placement {
    unsigned start, size;
};

struct gpu_instance_info {
    void *device;
    unsigned id, profile;
    struct placement placement;
};

struct compute_instance_info {
    void *device, *gpu_instance;
    unsigned id, profile;
    struct placement placement;
};

struct event_data {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct fabric_info {
    unsigned char cluster[16];
    nvmlReturn status;
    unsigned clique;
    unsigned char state;
};

struct fabric_info_v {
    unsigned version;
    unsigned char cluster[16];
    nvmlReturn status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

/* A versioned structure names its version in the topmost byte of its first word. */
#define VERSION_OF(word) ((word) >> 24)

#endif
